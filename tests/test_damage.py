"""Stores that something happened to: what is read is right, or refused in words.

Each damage is made to a copy of a store and judged by all draws that can then be read: they are
those of the run, or a StoreError, or a warning names the chains that are left out. Nothing else is
raised, nothing reaches beyond the folder, and little is allocated.
"""

import json
import os
import random
import shutil
import tracemalloc
import warnings

import jax.numpy as jnp
import numpy as np
import pytest
from typer.testing import CliRunner

import limpet
from limpet.cli import app
from limpet.draws import check, commits
from limpet.run import specification

TARGET = limpet.Target(lambda x: jnp.array([x @ x - 1]), 0.05)
RUN = {"draws": 150, "warmup": 100, "chains": 130, "thin": 2, "progress": False}
MOST_ALLOCATED = 100e6  # bytes beyond what the folder holds


@pytest.fixture(scope="module", autouse=True)
def small_chunks():
    """Several chunks of each array, and a state after each of them."""

    def commit_at_once(self, *what):
        self.commit(*what)
        self.finish()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(specification, "LONGEST_CHUNK", 64)
        patch.setattr(commits.Commits, "look", commit_at_once)
        patch.setattr(os, "fsync", lambda _: None)
        yield


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    """A store, another run's of the same sizes, and the draws of the first."""
    folder = tmp_path_factory.mktemp("stores")
    options = RUN | {"kernel": limpet.SAS(), "keep_surface": True}
    paths = folder / "ours.zarr", folder / "theirs.zarr"
    for seed, path in enumerate(paths):
        limpet.sample(TARGET, [1.0, 0.0], store=path, seed=seed, **options)
    return *paths, limpet.sample(TARGET, [1.0, 0.0], seed=0, **options | {"draws": 400})


@pytest.fixture
def copied(stores, tmp_path):
    """A copy of the store for each damage, which shares all files with it."""
    count = iter(range(1_000_000))

    def copy():
        path = tmp_path / f"{next(count)}" / "run.zarr"
        shutil.copytree(stores[0], path, copy_function=os.link)
        return path

    return copy


def replaced(file, contents):
    """Give a file other contents, and leave the copies that share it as they are."""
    file.unlink()
    file.write_bytes(contents)


def agree(draws, truth):
    """Whether these draws, of the chains that are shown, are the first of the true ones."""
    for group in ("posterior", "surface", "sample_stats"):
        for name, array in draws[group].data_vars.items():
            chains = array["chain"].values
            true = truth[group][name].values[chains, : array.sizes["draw"]]
            np.testing.assert_array_equal(array.values, true)
    return draws["posterior"].sizes["draw"]


def outcome(action, truth):
    """Draws that agree with the truth, or words."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", limpet.LimpetWarning)
        try:
            agree(action(), truth)
        except limpet.StoreError as error:
            said = str(error)
        else:
            return "right"
    assert said.replace("\n", " ").isprintable()
    return "refused"


def judged(path, truth, resume=False):
    """Open, check and perhaps resume a damaged store; how opening went."""
    held = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    tracemalloc.start()
    try:
        opened = outcome(lambda: limpet.open(path), truth)
        report = check(path)
        assert tracemalloc.get_traced_memory()[1] < held + MOST_ALLOCATED
    finally:
        tracemalloc.stop()
    assert str(report).replace("\n", " ").isprintable()
    assert opened == "right" or not report.intact
    if resume:
        resumed = outcome(lambda: limpet.resume(path, TARGET, progress=False), truth)
        if resumed == "right":
            assert outcome(lambda: limpet.open(path), truth) == "right"
    return opened


# random damages


def flip(file, chance, _):
    contents = bytearray(file.read_bytes())
    for _ in range(chance.choice([1, 1, 4, 64])):
        contents[chance.randrange(len(contents))] ^= 1 << chance.randrange(8)
    replaced(file, contents)


def truncate(file, chance, _):
    contents = file.read_bytes()
    replaced(file, contents[: chance.randrange(len(contents))])


def append(file, chance, _):
    replaced(file, file.read_bytes() + chance.randbytes(chance.choice([1, 36, 5_000])))


def zero(file, chance, _):
    replaced(file, bytes(len(file.read_bytes())))


def delete(file, *_):
    file.unlink()


def take_from_another_run(file, _, others):
    theirs, inside = others
    replaced(file, (theirs / inside).read_bytes())


def swap(file, chance, _):
    other = chance.choice([f for f in sorted(file.parent.iterdir()) if f.is_file()])
    contents = file.read_bytes(), other.read_bytes()
    replaced(file, contents[1])
    replaced(other, contents[0])


def link_to_itself(file, *_):
    file.rename(file.with_name("moved"))
    file.symlink_to(file.with_name("moved"))


def link_folder_to_another_run(file, _, others):
    theirs, inside = others
    if file.parent.name == "run.zarr":
        return
    shutil.rmtree(file.parent)
    file.parent.symlink_to((theirs / inside).parent)


def folder_instead(file, *_):
    file.unlink()
    file.mkdir()


def pipe_instead(file, *_):
    file.unlink()
    os.mkfifo(file)


def make_enormous(file, *_):
    contents = file.read_bytes()
    replaced(file, contents)
    os.truncate(file, 10**12)


DAMAGES = (
    flip,
    flip,
    flip,
    truncate,
    append,
    zero,
    delete,
    take_from_another_run,
    swap,
    swap,
    link_to_itself,
    link_folder_to_another_run,
    folder_instead,
    pipe_instead,
    make_enormous,
)


@pytest.mark.parametrize(
    "part", [0, *(pytest.param(part, marks=pytest.mark.slow) for part in range(1, 8))]
)
def test_random_damages_are_refused_or_do_no_harm(stores, copied, part):
    ours, theirs, truth = stores
    chance = random.Random(part)
    every = (file.relative_to(ours) for file in ours.rglob("*") if file.is_file())
    places = sorted(file for file in every if (theirs / file).is_file())  # one may be ahead
    found = []
    for number in range(40):
        path, inside = copied(), chance.choice(places)
        chance.choice(DAMAGES)(path / inside, chance, (theirs, inside))
        found.append(judged(path, truth, resume=number % 4 == 0))
        shutil.rmtree(path)
    assert {"right", "refused"} == set(found)
    assert outcome(lambda: limpet.open(ours), truth) == "right"  # links were not written through


# chosen damages


def chunks_of(path, name="posterior/x"):
    return sorted(path.glob(f"{name}/c.*"))


@pytest.mark.parametrize("name", ["posterior/x", "surface/x", "sample_stats/lp"])
def test_chunks_in_each_others_places_are_refused(stores, copied, name):
    path = copied()
    first, second, *_ = chunks_of(path, name)
    contents = first.read_bytes(), second.read_bytes()
    replaced(first, contents[1])
    replaced(second, contents[0])
    group, variable = name.split("/")
    with pytest.raises(limpet.StoreError, match="damaged, or of another place or run"):
        limpet.open(path)[group][variable].load()


@pytest.mark.parametrize("name", ["posterior/x", "sample_stats/step", "limpet/start"])
def test_a_chunk_of_another_run_or_array_is_refused(stores, copied, name):
    path = copied()
    for file in chunks_of(path, name):
        other = stores[1] / file.relative_to(path)
        if other.is_file():  # one may be ahead
            replaced(file, other.read_bytes())
    if name == "limpet/start":
        with pytest.raises(limpet.StoreError, match="of another place or run"):
            limpet.resume(path, TARGET, progress=False)
        return
    group, variable = name.split("/")
    with pytest.raises(limpet.StoreError, match="damaged, or of another place or run"):
        limpet.open(path)[group][variable].load()


@pytest.mark.parametrize("name", ["posterior/x", "surface/x", "sample_stats/step"])
def test_a_damaged_chunk_of_any_group_is_drawn_again(stores, copied, name):
    path = copied()
    replaced(next((path / name).glob("c.1.0*")), b"damaged")
    with pytest.warns(limpet.LimpetWarning, match="chains 128 to 129 is damaged.*begin again"):
        draws = limpet.resume(path, TARGET, progress=False)
    assert agree(draws, stores[2]) == RUN["draws"]
    assert check(path).readable


def test_an_array_in_the_place_of_another_is_refused(copied):
    path = copied()
    for file in chunks_of(path, "posterior/x"):
        replaced(file, (path / "surface/x" / file.name).read_bytes())
    with pytest.raises(limpet.StoreError, match="damaged, or of another place or run"):
        limpet.open(path).posterior["x"].load()


def test_states_of_another_run_are_refused(stores, copied):
    path = copied()
    for file in (path / "limpet/tiles").iterdir():
        replaced(file, (stores[1] / "limpet/tiles" / file.name).read_bytes())
    with pytest.raises(limpet.StoreError, match="stored of chains 0 to 127 is damaged"):
        limpet.open(path)


def test_an_older_version_of_a_chunk_is_refused(stores, copied, tmp_path):
    path = copied()
    short = tmp_path / "short.zarr"
    shutil.copytree(stores[0], short)
    run = json.loads((short / "zarr.json").read_text())["attributes"]["limpet"]
    # what the same run had written when it was shorter: its own key, the right place
    from limpet.draws.arrays import draw_arrays
    from limpet.draws.folder import Folder
    from limpet.run.specification import RunSpecification

    known = RunSpecification.from_json(run)
    array = draw_arrays(known)["posterior", "x"]
    part = array.read(Folder(short), known.key, 0, 1).copy()
    part[:, 30:] = np.nan
    place, parts = array.file(known.key, 0, 1, part)
    replaced(path / place, b"".join(bytes(piece) for piece in parts))
    with pytest.raises(limpet.StoreError, match=r"draws 64 to .*has fewer draws than"):
        limpet.open(path).posterior["x"].load()
    assert "older version" in str(check(path))


def test_a_linked_folder_is_not_written_through(stores, copied, tmp_path):
    path, outside = copied(), tmp_path / "outside"
    shutil.copytree(path / "posterior/x", outside)
    shutil.rmtree(path / "posterior/x")
    (path / "posterior/x").symlink_to(outside)
    before = {file.name: file.read_bytes() for file in outside.iterdir()}
    with pytest.raises(limpet.StoreError, match="'posterior/x' is a link, or not a folder"):
        limpet.resume(path, TARGET, draws=400, progress=False)
    assert {file.name: file.read_bytes() for file in outside.iterdir()} == before
    assert check(path).links == ["posterior/x"]


# edits of zarr.json


def edited(path, name, value, *, honest):
    """Change an entry; with `honest` the checksum is made to fit, as a forger would."""
    file = path / "zarr.json"
    root = json.loads(file.read_text())
    entries = root["attributes"]["limpet"]
    checksum = entries.pop("checksum")
    if value is delete:
        del entries[name]
    else:
        entries[name] = value
    if honest:
        checksum = specification._digest(entries).hex()
    entries["checksum"] = checksum
    replaced(file, json.dumps(root).encode())


def nested(depth):
    structure = {"array": [2]}
    for _ in range(depth):
        structure = {"list": [structure]}
    return structure


EDITS = [
    *(("draws", value) for value in (-5, 0, "400", float("nan"), 1e308, None, 2**70, [], 10**15)),
    *(("thin", value) for value in (0, 1, 4, -1, 2.0, "2", 10**18)),
    *(("chains", value) for value in (0, 129, 131, 10**9, 2**24, "130", None)),
    *(("width", value) for value in (0, 1, 127, 130, -128)),
    *(("chunk", value) for value in (0, 1, 63, 65, 4096, 10**9)),
    *(("layout", value) for value in ("x", [], {}, nested(40), nested(60), {"dict": {}})),
    *(("layout", {"array": shape}) for shape in ([10**9], [-1], [3], [2, 10**9], "2", [0])),
    ("layout", {"dict": {"../../evil": {"array": [2]}}}),
    ("layout", {"dict": {"x\x1b[31m": {"array": [2]}}}),
    *(("kernel", value) for value in ("\x1b[31mSAS", "", 3, "RandomWalk", "os.system")),
    *(("fields", value) for value in ({}, {"sigma_hrd": "x"}, {"unknown": 1}, [], {"a": {}})),
    *(("parameters", value) for value in ({}, None, {"sigma_hrd": "x"})),
    *(("sizes", value) for value in ([], ["sigma_hrd"], ["unknown"], "x", [3])),
    *(("moves", value) for value in ([], ["hard", "flight"], 3)),
    *(("seed", value) for value in (-1, 7, "x")),
    *(("target", value) for value in (None, {}, {"eps": "x", "values": {}, "programs": {}})),
    *(("constraints", value) for value in (-1, 2, 10**12)),
    *(("run", value) for value in ("x", "0" * 32, 5)),
    *(("format", value) for value in (3, 4, "5", None)),
    *(("keep_surface", value) for value in (False, 1)),
    *(("coordinates", value) for value in (None, 3, {}, {"dims": {}}, {"dims": {}, "coords": {}})),
    *(
        ("coordinates", {"dims": dims, "coords": {}})
        for dims in (None, 3, {"x": ["a"]}, {"x": "a"}, {"x": ["a", "b"]}, {"y": ["a"]}, {"x": [3]})
    ),
    *(("coordinates", {"dims": {"x": [name]}, "coords": {}}) for name in ("chain", "x", "\x1b[2J")),
    *(
        ("coordinates", {"dims": {}, "coords": {"x_dim": labels}})
        for labels in (None, "ab", ["a"], ["a", "b"], ["a", "a"], ["a", 1], [0, 1], [True, False])
    ),
    *(
        ("coordinates", {"dims": {}, "coords": {"x_dim": labels}})
        for labels in (
            [float("nan"), 1],
            [2**70, 1],
            ["\x1b[2J", "b"],
            [nested(400), 1],
            [1] * 9**5,
        )
    ),
    ("coordinates", {"dims": {}, "coords": {"y_dim": [1, 2]}}),
    ("limpet_version", "\x1b]0;evil\x07"),
    ("draws", delete),
    ("unknown", 1),
]
assert len(EDITS) >= 60


@pytest.mark.parametrize("honest", [False, True], ids=["edited", "forged"])
def test_edits_of_the_specification_are_refused_or_do_no_harm(stores, copied, honest):
    for name, value in EDITS:
        path = copied()
        edited(path, name, value, honest=honest)
        found = judged(path, stores[2], resume=name != "draws")
        # another number of draws is what limpet.resume(draws=...) asks for; none is forged
        assert found == "refused" or (honest and name == "draws"), (name, value)
        shutil.rmtree(path.parent)


@pytest.mark.parametrize(
    ("coords", "said"),
    [
        ({"way": ["east"]}, r"coords of 'way'=\['east'\] has 1 label: expected 2"),
        ({"way": [None, "north"]}, "None, a NoneType, cannot be a label"),
        ({"road": ["east", "north"]}, "coords has 'road', which is no axis"),
        (["east", "north"], r"coords=\['east', 'north'\]: expected a dict"),
    ],
    ids=["length", "type", "axis", "list"],
)
def test_labels_of_a_store_are_not_trusted(tmp_path, coords, said):
    path, options = tmp_path / "run.zarr", {"draws": 20, "chains": 2, "progress": False}
    words = {"dims": {"x": ["way"]}, "coords": {"way": ["east", "north"]}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", limpet.LimpetWarning)
        limpet.sample(TARGET, [1.0, 0.0], store=path, **words, **options)
    edited(path, "coordinates", {"dims": {"x": ["way"]}, "coords": coords}, honest=True)
    for action in (limpet.open, lambda path: limpet.resume(path, TARGET, progress=False)):
        with pytest.raises(limpet.StoreError, match=f"run is damaged: coordinates: .*{said}"):
            action(path)


ROOTS = ["", "{", "[]", "null", "{}", '{"attributes": 3}', '{"attributes": {"limpet": []}}']
ROOTS += ["[" * 100_000, '{"attributes": {"limpet": {"format": 5}}}', "\xff\xfe"]
ROOTS += ['{"attributes": {"limpet": ' + '{"layout": ' * 5_000 + "1" + "}" * 5_002]


@pytest.mark.parametrize("text", ROOTS, ids=range(len(ROOTS)))
def test_a_root_that_is_not_one(stores, copied, text):
    path = copied()
    replaced(path / "zarr.json", text.encode("latin-1"))
    assert judged(path, stores[2]) == "refused"


def test_edits_of_array_metadata_change_nothing_for_limpet(stores, copied):
    gzip = [{"name": "gzip", "configuration": {"level": 1}}]
    for name, value in (("shape", [10**9, 150, 2]), ("codecs", gzip), ("data_type", "int8")):
        path = copied()
        file = path / "posterior/x/zarr.json"
        metadata = json.loads(file.read_text()) | {name: value}
        replaced(file, json.dumps(metadata).encode())
        assert judged(path, stores[2], resume=True) == "right"
        assert check(path).intact  # put in order by resume


# limpet check


def checked(path, *options, code):
    result = CliRunner().invoke(app, ["check", str(path), *options])
    assert result.exit_code == code, result.output
    return result.stdout


def test_an_intact_store_is_told(stores):
    text = checked(stores[0], code=0)
    assert "chains 128 to 129" in text
    assert text.endswith("Everything is intact.\n")
    facts = json.loads(checked(stores[0], "--json", code=0))
    assert facts["intact"]
    assert facts["readable"]
    assert facts["arrays"]["posterior/x"]["bad"] == []
    assert facts["arrays"]["posterior/x"]["chunks"] == len(chunks_of(stores[0]))
    assert [tile["chains"] for tile in facts["tiles"]] == [[0, 127], [128, 129]]
    assert all(tile["draws"] >= 150 for tile in facts["tiles"])


def test_everything_that_is_wrong_is_told(copied, tmp_path):
    path = copied()
    chunks_of(path)[0].unlink()
    replaced(path / "limpet/tiles/1.0", b"short")
    (path / "notes.txt").write_text("mine")
    (path / "posterior/away").symlink_to(tmp_path)
    facts = json.loads(checked(path, "--json", code=1))
    assert facts["arrays"]["posterior/x"]["bad"] == ["'posterior/x/c.0.0.0' is missing"]
    assert facts["tiles"][1]["intact"] == 1
    assert facts["unexpected"] == ["notes.txt"]
    assert facts["links"] == ["posterior/away"]
    text = checked(path, code=1)
    assert "'posterior/x/c.0.0.0' is missing" in text
    assert "'limpet/tiles/1.0' is too short" in text
    assert "limpet.resume(store, target) makes the draws of damaged tiles again" in text


def test_a_file_of_somebody_else_does_no_harm(copied):
    path = copied()
    (path / "notes.txt").write_text("mine")
    assert "not limpet's: notes.txt" in checked(path, code=0)


def test_a_damaged_specification_is_told(copied):
    path = copied()
    edited(path, "kernel", "\x1b[31mSAS", honest=True)
    text = checked(path, code=1)
    assert "kernel is '\\x1b[31mSAS'" in text
    assert "\x1b" not in text


def test_there_is_nothing_to_check(tmp_path):
    result = CliRunner().invoke(app, ["check", str(tmp_path / "none.zarr")])
    assert result.exit_code == 1
    assert "There is no store" in result.stderr
