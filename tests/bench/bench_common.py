"""What the benches share: the corpus, the contenders and how each is run and timed.

A contender is trained by run(): it takes settings and gives a Run with the vectors' path and two
times, of the whole process and of its training alone (see README.md for how each tool's is taken).
"""

import argparse
import dataclasses
import json
import lzma
import os
import pathlib
import re
import selectors
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
SKIPPED = 77  # what ctest takes for "skipped"


@dataclasses.dataclass
class Settings:
    """One training. The defaults are those of the comparison with gensim."""
    mode: str = "skipgram"  # or "cbow"
    dim: int = 100
    window: int = 5
    negative: int = 5
    sample: float = 1e-4
    min_count: int = 5
    epochs: int = 5
    alpha: float = 0.025
    seed: int = 1
    memory: str = "512M"


@dataclasses.dataclass
class Run:
    vectors: pathlib.Path
    whole_s: float     # wall time of the whole process
    training_s: float  # of its training alone
    bytes_out: int = 0  # of messages of the training, of one worker; embps alone
    bytes_in: int = 0


@dataclasses.dataclass
class Corpus:
    text8: pathlib.Path  # one line, as it is
    lines: pathlib.Path  # the same words, 10,000 a line: what gensim's fast reader needs
    words: int


def shared_data():
    """The folder of test data, or None: EMBPS_SHARED_DATA, else beside the checkout."""
    name = os.environ.get("EMBPS_SHARED_DATA")
    folder = pathlib.Path(name) if name else ROOT.parent / "shared" / "data"
    return folder if folder.is_dir() else None


def need_shared_data():
    folder = shared_data()
    if folder is None:
        print("skipped: no test data (EMBPS_SHARED_DATA, or ../shared/data beside the checkout)")
        sys.exit(SKIPPED)
    return folder


def corpus_a(work, limit_words=None):
    """Corpus A below the folder work, unpacked once; limit_words keeps its beginning alone."""
    suffix = "" if limit_words is None else f".{limit_words}"
    text8, lines = work / f"corpusA{suffix}.text8", work / f"corpusA{suffix}.lines"
    if not (text8.exists() and lines.exists()):
        source = need_shared_data() / "text" / "corpusA.text8.txt.xz"
        with lzma.open(source, "rt", encoding="ascii") as packed:
            words = packed.read().split()[:limit_words]
        write_whole(text8, " ".join(words))
        write_whole(lines, "".join(" ".join(words[i:i + 10000]) + "\n"
                                   for i in range(0, len(words), 10000)))
    with open(lines, encoding="ascii") as text:
        n = sum(len(line.split()) for line in text)
    return Corpus(text8, lines, n)


def write_whole(path, text):
    part = path.with_name(path.name + ".part")
    part.write_text(text, encoding="ascii")
    part.rename(path)


def peer_environment():
    """For the peers: settings that hold numpy's BLAS to another processor's kernels would slow them
    down."""
    return {name: value for name, value in os.environ.items()
            if name not in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")}


def on_cores(command, cores):
    """The command held to these cores ("0,1"), or as it is."""
    return command if cores is None else ["taskset", "-c", cores, *command]


def run_quietly(command, environment=None):
    """Runs it; its words are shown only when it fails. Returns the wall time and what it said."""
    started = time.monotonic()
    done = subprocess.run([str(part) for part in command], env=environment, check=False, text=True,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, errors="replace")
    if done.returncode != 0:
        sys.stderr.write(done.stdout[-4000:])
        sys.exit(f"failed with {done.returncode}: {' '.join(str(part) for part in command)}")
    return time.monotonic() - started, done.stdout


def trainer_arguments(corpus, settings, vectors, log):
    return [settings.mode, "--corpus", corpus.text8, "--out", vectors, "--dim", settings.dim,
            "--window", settings.window, "--negative", settings.negative, "--sample",
            settings.sample, "--min-count", settings.min_count, "--epochs", settings.epochs,
            "--alpha", settings.alpha, "--seed", settings.seed, "--log-json", log, "--quiet"]


def run_embps(build, servers, workers, corpus, settings, folder, cores=None, threads=None,
              options=(), server_options=()):
    """servers 0: local, with that many threads (None: a thread for each core). options: more of the
    trainer's; server_options: of the servers."""
    vectors, log, tables = folder / "vectors.txt", folder / "log.json", folder / "tables"
    shutil.rmtree(tables, ignore_errors=True)
    arguments = [*trainer_arguments(corpus, settings, vectors, log), *options]
    if servers == 0:
        command = [build / "embps-train", *arguments, "--local", "--data", tables, "--memory",
                   settings.memory, *(["--threads", threads] if threads else [])]
    else:
        command = [ROOT / "scripts" / "embps-run", "--bin-dir", build, "--servers", servers,
                   "--workers", workers, "--data", tables, "--memory", settings.memory,
                   *(part for option in server_options for part in ("--server-arg", option)), "--",
                   *arguments]
    whole_s, _ = run_quietly(on_cores(command, cores))
    with open(log, encoding="utf-8") as lines:
        last = [json.loads(line) for line in lines][-1]
    shutil.rmtree(tables, ignore_errors=True)
    if last["event"] != "done":
        sys.exit(f"{log} does not end with the training's end")
    return Run(vectors, whole_s, last["time_s"], last["bytes_out"], last["bytes_in"])


GENSIM_PROGRAM = """
import json, sys, time
from gensim.models.word2vec import Word2Vec
s = json.loads(sys.argv[1])
model = Word2Vec(vector_size=s["dim"], window=s["window"], negative=s["negative"], hs=0,
                 sample=s["sample"], min_count=s["min_count"], epochs=s["epochs"],
                 alpha=s["alpha"], seed=s["seed"],
                 sg=1 if s["mode"] == "skipgram" else 0,
                 cbow_mean=1, workers=s["workers"])
model.build_vocab(corpus_file=s["corpus"])
started = time.monotonic()
model.train(corpus_file=s["corpus"], total_words=model.corpus_total_words,
            total_examples=model.corpus_count, epochs=model.epochs)
seconds = time.monotonic() - started
model.wv.save_word2vec_format(s["vectors"])
print(json.dumps({"training_s": seconds}))
"""


def run_gensim(workers, corpus, settings, folder, cores=None):
    vectors = folder / "vectors.txt"
    wanted = dataclasses.asdict(settings) | {
        "corpus": str(corpus.lines), "vectors": str(vectors), "workers": workers}
    command = ["/usr/bin/python3", "-c", GENSIM_PROGRAM, json.dumps(wanted)]
    whole_s, said = run_quietly(on_cores(command, cores), peer_environment())
    return Run(vectors, whole_s, json.loads(said.splitlines()[-1])["training_s"])


def run_fasttext(threads, corpus, settings, folder, cores=None):
    """Plain word2vec by Debian's fastText. Its training runs from the end of the dictionary ("Number
    of labels") to the last progress line, by the time at which they arrive."""
    output = folder / "fasttext"
    command = on_cores(["fasttext", settings.mode, "-input", corpus.text8, "-output", output, "-dim",
                        settings.dim, "-ws", settings.window, "-neg", settings.negative, "-loss",
                        "ns", "-t", settings.sample, "-minCount", settings.min_count, "-epoch",
                        settings.epochs, "-lr", settings.alpha, "-minn", 0, "-maxn", 0, "-thread",
                        threads], cores)
    started = time.monotonic()
    begun = ended = None
    said = b""
    with subprocess.Popen([str(part) for part in command], env=peer_environment(),
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT) as process:
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while selector.select():
                piece = os.read(process.stdout.fileno(), 65536)
                if not piece:
                    break
                said = (said + piece)[-4000:]
                now = time.monotonic()
                if begun is None and b"Number of labels" in said:
                    begun = now
                if b"Progress" in piece:
                    ended = now
    whole_s = time.monotonic() - started
    if process.returncode != 0 or begun is None or ended is None:
        sys.exit(f"fasttext failed with {process.returncode}: {said.decode(errors='replace')}")
    return Run(output.with_suffix(".vec"), whole_s, ended - begun)


# Test -> file below eval/.
SIMILARITY = {"ws353": "EN-WS-353-ALL.txt", "men": "EN-MEN-TR-3k.txt",
              "simlex": "EN-SIMLEX-999.txt"}
ANALOGY = {"analogy": "questions-words.txt"}


def evaluate(build, data, vectors):
    """Test -> score, as `embps eval` finds it."""
    command = [build / "embps", "eval", "--vectors", vectors, "--json", "--similarity"]
    command += [data / "eval" / name for name in SIMILARITY.values()]
    command += ["--analogy"] + [data / "eval" / name for name in ANALOGY.values()]
    _, said = run_quietly(command)
    said = json.loads(said)
    scores = {pathlib.Path(part["file"]).name: part["spearman"] for part in said["similarity"]}
    scores |= {pathlib.Path(part["file"]).name: part["total"]["accuracy"]
               for part in said["analogy"]}
    return {test: scores[name] for test, name in {**SIMILARITY, **ANALOGY}.items()}


def commit():
    """Which state of the project this is; "+" for one with changes."""
    def git(*arguments):
        return subprocess.run(["git", "-C", ROOT, *arguments], check=False, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout.strip()
    changed = git("status", "--porcelain", "--untracked-files=no")
    return (git("rev-parse", "--short", "HEAD") or "unknown") + ("+" if changed else "")


def machine():
    """One line: processor, cores, memory, load."""
    lscpu = subprocess.run(["lscpu"], check=False, text=True, stdout=subprocess.PIPE,
                           env=os.environ | {"LC_ALL": "C"}).stdout
    facts = dict(re.findall(r"^\s*([^:\n]+):\s*(.*)$", lscpu, re.MULTILINE))
    vectors = [name for name in ("avx512f", "avx2", "sse4_2")
               if name in facts.get("Flags", "").split()]
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return (f"{facts.get('Model name', '?')} (family {facts.get('CPU family', '?')}, model "
            f"{facts.get('Model', '?')}), {len(os.sched_getaffinity(0))} cores, "
            f"{facts.get('Thread(s) per core', '?')} thread a core, L2 {facts.get('L2 cache', '?')}, "
            f"L3 {facts.get('L3 cache', '?')}, {vectors[0] if vectors else 'no vectors'}, "
            f"{pages >> 30} GiB, load {os.getloadavg()[0]:.1f}")


def bench_parser(description):
    parser = argparse.ArgumentParser(description=description,
                                     formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build",
                        help="build folder with the programs; a release-like one")
    parser.add_argument("--work", type=pathlib.Path, default=ROOT / "build-bench",
                        help="folder for the unpacked corpus and the results")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--limit-words", type=int, default=None,
                        help="only the first words of the corpus, for a try")
    return parser


def bench_start(arguments):
    """The corpus, and a folder for one run's files that is removed at the end (a TemporaryDirectory).
    Skips when data or programs are absent."""
    need_shared_data()
    if not (arguments.build / "embps-train").exists():
        sys.exit(f"no programs in {arguments.build}: build them, or give --build")
    arguments.build = arguments.build.resolve()
    arguments.work.mkdir(parents=True, exist_ok=True)
    corpus = corpus_a(arguments.work, arguments.limit_words)
    return corpus, tempfile.TemporaryDirectory(prefix="run.", dir=arguments.work)
