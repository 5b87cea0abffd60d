"""Machine code of a program in LLVM's language, for the processor of this machine.

Needs nothing but llvmlite, so that another process can be given this file's text, and compile.
"""

import functools
import json
import os
import sys
import threading

import llvmlite.binding as llvm

# Lines of a program that is compiled without looking for registers: every number has a place on the
# stack then, and a thread's stack may be as small as 512 kB.
MOST_ON_STACK = 10_000


def compiled(text: str, *, quick: bool, unroll: bool = True) -> bytes:
    """The machine code of a text, as an object file.

    Quickly compiled takes a fifth of the time; the code takes twice as long, and may round
    differently.
    """
    lines = text.count("\n")
    target = machine(int(lines > MOST_ON_STACK) if quick else 3)
    module = llvm.parse_assembly(text)
    if quick:
        options = llvm.create_pipeline_tuning_options()
        passes = llvm.create_new_module_pass_manager()
        passes.add_sroa_pass()
        passes.run(module, llvm.create_pass_builder(target, options))
    else:
        # Level 1, for levels 2 and 3 find nothing more: their code has the same bits and speed
        # (measured with Lifted and SAS: spheres, beads, dense quadratics), and compiling takes 1.1
        # to 1.9 times as long.
        options = llvm.create_pipeline_tuning_options(speed_level=1)
        options.loop_unrolling = unroll
        builder = llvm.create_pass_builder(target, options)
        builder.getModulePassManager().run(module, builder)
    return target.emit_object(module)


def machine(level: int = 3):
    """LLVM's description of this processor; the level is how hard it looks for good code."""
    target, name, features = _processor()
    return target.create_target_machine(cpu=name, features=features, opt=level, jit=True)


def is_wide() -> bool:
    """Whether this processor has registers of 512 bits, eight numbers each."""
    return "+avx512f" in _processor()[2].split(",")


@functools.cache
def _processor():
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    name, features = llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()
    return llvm.Target.from_default_triple(), name, features


def _compile_for_another():
    """Compile what stdin has, a line of options and a program, to stdout.

    Stdin stays open as long as somebody waits: when that process ends, in whatever way, so does
    this one.
    """
    options = json.loads(sys.stdin.buffer.readline())
    text = sys.stdin.buffer.read(options.pop("bytes")).decode()

    def end_with_the_other():
        os.read(0, 1)
        os._exit(1)

    threading.Thread(target=end_with_the_other, daemon=True).start()
    sys.stdout.buffer.write(compiled(text, **options))
    sys.stdout.flush()
    os._exit(0)  # Python would wait for the thread


if __name__ == "__main__":
    _compile_for_another()
