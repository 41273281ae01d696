from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
from PIL import Image

from podpo.cli import main, parse
from podpo.run_folder import RunFolder, find_run
from podpo.validation import ConfigError

TINY = [
    *("--num-envs", "8", "--num-steps-per-env", "8", "--max-iterations", "2", "--logger", "none"),
    *("--eval-episodes", "4", "--eval-interval", "1", "--algorithm.num-mini-batches", "2"),
    *("--algorithm.actor.hidden-dims", "8", "--algorithm.critic.hidden-dims", "8"),
]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def trained(here: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """The folder of a short run; what was printed is forgotten."""
    assert main(["train", "multi-goal", *TINY]) == 0
    printed = capsys.readouterr().out.splitlines()
    folder = Path(printed[-1])
    assert folder.is_dir(), "training ends by printing the run folder"
    return folder


def test_train_eval_play_export_plot(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["eval", str(trained), "--episodes", "6", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["episodes"] == 6
    assert record["noise"] == "zero"
    assert record["survival"] == 1.0
    assert {"return_mean", "success"} <= record.keys()
    assert main(["eval", "latest", "--noise", "sample", "--best"]) == 0
    assert "return mean" in capsys.readouterr().out

    assert main(["play", str(trained), "--video", "film.gif"]) == 0
    with Image.open("film.gif") as film:
        assert film.n_frames == 50  # pyright: ignore[reportAttributeAccessIssue]

    assert main(["export", "latest", "--out", "policy.onnx"]) == 0
    session = onnxruntime.InferenceSession("policy.onnx", providers=["CPUExecutionProvider"])
    assert np.asarray(session.run(None, {"obs": np.zeros((3, 4), np.float32)})[0]).shape == (3, 2)

    capsys.readouterr()
    assert main(["plot", str(trained), "--out", "pictures/curve.png"]) == 0
    with Image.open("pictures/curve.png") as picture:
        assert np.asarray(picture.convert("L")).std() > 10


def test_eval_of_a_fixed_seed_repeats(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    printed = []
    for seed in ("3", "3", "4"):
        assert main(["eval", str(trained), "--noise", "sample", "--seed", seed, "--json"]) == 0
        printed.append(capsys.readouterr().out.replace(f'"seed": {seed}', ""))
    assert printed[0] == printed[1]
    assert printed[0] != printed[2]


def test_eval_sees_other_episodes_than_those_that_chose_the_best(
    trained: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chosen_by = json.loads((trained / "evaluation.json").read_text())["zero"]
    assert main(["eval", "latest", "--episodes", str(chosen_by["episodes"]), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["return_mean"] != chosen_by["return_mean"]


def test_an_agent_is_filmed(here: Path) -> None:
    assert main(["play", "random", "--task", "bandit", "--video", "sheet.png"]) == 0
    with Image.open("sheet.png") as sheet:
        assert sheet.size == (4 * 200, 3 * 200)
    assert main(["play", "random", "--task", "bandit", "--video", "film.gif"]) == 0
    with Image.open("film.gif") as film:
        assert film.n_frames == 31  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize("agent", ["zero", "random"])
def test_agents_need_no_training(agent: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["eval", agent, "--task", "bandit", "--json"]) == 0
    assert 0 <= json.loads(capsys.readouterr().out)["return_mean"] <= 1


def test_resume_goes_on(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--resume", "latest", "--max-iterations", "4"]) == 0
    printed = capsys.readouterr().out
    assert "going on from iteration 2 of 4" in printed
    assert Path(printed.splitlines()[-1]) == trained
    config = find_run(str(trained))[0].read_config()
    assert (config.num_envs, config.max_iterations) == (8, 4)
    starts = json.loads((trained / "params" / "run.json").read_text())
    assert len(starts) == 2, "the first start is not forgotten"


def test_a_finished_run_says_that_it_is_done(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (trained / "params" / "run.json").read_text()
    assert main(["train", "--resume", str(trained)]) == 0
    assert "the run is complete: 2 of 2 iterations" in capsys.readouterr().out
    assert main(["train", "--resume", str(trained), "--max-iterations", "1"]) == 2
    assert "the run has made 2 already" in capsys.readouterr().err
    assert (trained / "params" / "run.json").read_text() == before
    assert find_run(str(trained))[0].read_config().max_iterations == 2


def test_a_time_limit_holds_for_one_process(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "bandit", *TINY, "--max-time", "1e-6"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[-2].startswith("stopped at iteration 0 of 2; to go on: podpo train --resume")
    assert main(printed[-2].partition("podpo ")[2].split()) == 0
    assert "stopped" not in capsys.readouterr().out


def test_an_earlier_checkpoint_goes_on_in_a_new_folder(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    state = torch.load(trained / "checkpoints" / "last.pt", weights_only=True)
    (trained / "checkpoints" / "best.pt").write_bytes((trained / "checkpoints" / "last.pt").read_bytes())
    best = str(trained / "checkpoints" / "best.pt")
    assert main(["train", "--resume", best, "--max-iterations", "3"]) == 0
    branch = Path(capsys.readouterr().out.splitlines()[-1])
    assert branch != trained
    assert len((branch / "progress.csv").read_text().splitlines()) == 4
    assert len((trained / "progress.csv").read_text().splitlines()) == 3
    kept = torch.load(trained / "checkpoints" / "last.pt", weights_only=True)
    assert kept["training"]["iteration"] == state["training"]["iteration"] == 2


def test_latest_is_looked_up_once(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A run that was moved still says where it was; another one may be there by now."""
    for root in ("logs", "moved"):
        assert main(["train", "bandit", *TINY, "--log-root", root]) == 0
    ours = Path(capsys.readouterr().out.splitlines()[-1])
    config = json.loads((ours / "params" / "config.json").read_text())
    (ours / "params" / "config.json").write_text(json.dumps(config | {"log_root": "logs"}))
    assert main(["train", "--resume", "latest", "--log_root", "moved", "--max-iterations", "3"]) == 0
    assert Path(capsys.readouterr().out.splitlines()[-1]) == ours


def test_two_processes_cannot_train_one_run(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (trained / "progress.csv").read_text()
    with RunFolder(trained).being_written():
        assert main(["train", "--resume", str(trained), "--max-iterations", "9"]) == 2
    assert "is being trained by another process" in capsys.readouterr().err
    assert (trained / "progress.csv").read_text() == before
    assert main(["train", "--resume", str(trained), "--max-iterations", "3"]) == 0


@pytest.mark.parametrize("algorithm", ["podpo", "ppo"])
def test_a_diverged_training_stops_and_keeps_what_was_good(
    here: Path, capsys: pytest.CaptureFixture[str], algorithm: str
) -> None:
    name = ["--algorithm.name", algorithm]
    assert main(["train", "point-track", *name, *TINY]) == 0
    folder = Path(capsys.readouterr().out.splitlines()[-1])
    kept = (folder / "checkpoints" / "last.pt").read_bytes()
    steep = ["--algorithm.learning-rate", "1e30", "--algorithm.value-loss-coef", "1e30"]
    if algorithm == "ppo":
        steep += ["--algorithm.ppo.schedule", "fixed"]
    assert main(["train", "--resume", str(folder), "--max-iterations", "9", *steep]) == 1
    assert "training has diverged" in capsys.readouterr().err
    assert (folder / "checkpoints" / "last.pt").read_bytes() == kept


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[]", "holds no settings"),
        ("{", "cannot be read"),
        ('{"task": "bandit", "num_envs": "many"}', "num_envs = 'many' cannot work: give a whole number"),
        ('{"task": "bandit", "foo": 1}', "unknown setting 'foo'"),
        ('{"task": "bandit", "algorithm": null}', "algorithm = None cannot work: give a group of settings"),
    ],
)
def test_a_damaged_configuration_is_named(
    trained: Path, capsys: pytest.CaptureFixture[str], content: str, message: str
) -> None:
    (trained / "params" / "config.json").write_text(content)
    assert main(["eval", str(trained)]) == 2
    told = capsys.readouterr().err
    assert message in told
    assert "config.json" in told


def test_a_damaged_history_is_no_obstacle(trained: Path) -> None:
    (trained / "params" / "run.json").write_text("[{")
    assert main(["train", "--resume", str(trained), "--max-iterations", "3"]) == 0
    assert len(json.loads((trained / "params" / "run.json").read_text())) == 1


def test_what_is_shown_names_its_run(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    checkpoint = str(find_run("latest")[0].last)
    assert main(["eval", "latest", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["policy"] == checkpoint
    assert main(["eval", "latest"]) == 0
    assert f"{checkpoint}, noise zero, on multi-goal" in capsys.readouterr().out.splitlines()


def test_eval_prints_json_that_others_can_read(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["eval", "zero", "--task", "bandit", "--json"]) == 0
    record = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert record["success"] == 0.0
    assert "coverage" not in record, "nobody found a mode"


def test_plots_leave_out_runs_that_never_began(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, table in (("fresh", False), ("begun", True)):
        other = trained.parent / name
        (other / "params").mkdir(parents=True)
        (other / "params" / "config.json").write_text('{"task": "bandit"}')
        if table:
            (other / "progress.csv").write_text("")
            (other / "evaluations.csv").write_text("")
    assert main(["plot", *map(str, trained.parent.iterdir())]) == 0
    told = capsys.readouterr()
    assert "fresh ended before its first iteration" in told.err
    assert "begun" not in told.err
    assert main(["plot", str(trained.parent / "fresh")]) == 2
    assert "name one that has begun" in capsys.readouterr().err
    assert main(["plot", str(trained.parent / "begun")]) == 0, "nothing to see yet is no error"


def test_many_runs_fit_into_a_plot(trained: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert main(["plot", *[str(trained)] * 40]) == 0
    with Image.open("curve.png") as picture:
        assert picture.height > 900, "the legend takes no room from the curves"


def test_ppo_is_one_flag_away(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "bandit", "--algorithm.name", "ppo", *TINY]) == 0
    assert "_ppo_" in capsys.readouterr().out.splitlines()[-1]


def test_flags_change_the_preset_of_their_task() -> None:
    command = parse(["train", "bandit", "--algorithm.num-candidates", "16", "--algorithm.actor.init", "plain"])
    assert command.task == "bandit"
    assert command.algorithm.num_candidates == 16
    assert command.algorithm.actor.init == "plain"
    assert command.algorithm.actor.hidden_dims == (64, 64), "the rest of the preset stays"
    assert parse(["train"]).task == "go2-walk"
    assert parse(["train", "--seed", "2", "bandit"]) == parse(["train", "bandit", "--seed", "2"])


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        ("tran", ["no command 'tran'", "did you mean 'train'", "doctor"]),
        ("train point-trakc", ["no task 'point-trakc'", "did you mean 'point-track'", "multi-goal"]),
        ("eval zero --task bandti", ["no task 'bandti'", "did you mean 'bandit'"]),
        ("train --seed 1 bandti", ["no task 'bandti'"]),
        ("train --seed -1", ["seed = -1", "use 0 or more"]),
        ("train --algorithm.init-from nowhere", ["init_from = 'nowhere'", "no such file"]),
        ("train --logger wandb", ["logger = 'wandb'", "uv sync --extra wandb"]),
        ("train --seed 99999999999", ["seed = 99999999999", "below 2^31"]),
        ("eval zero --seed 99999999999", ["seed = 99999999999", "below 2^31"]),
        ("train --algorithm.init-from ../../../../../../etc/hostname", ["init_from", "no checkpoint that can be read"]),
        ("train --device gpu", ["device = 'gpu'", "here are cpu and"]),
        ("plot", ["runs = ()", "name one or more"]),
        ("train --num-envs 0", ["num_envs = 0", "use 1 or more"]),
        ("train --algorithm.num-candidates 0", ["num_candidates = 0", "use 2 or more"]),
        ("train --algorithm.name ppo --algorithm.num-candidates 4", ["num_candidates = 4 means nothing to ppo"]),
        ("train --algorithm.ppo.entropy-coef 0.1", ["ppo.entropy_coef = 0.1 means nothing to podpo"]),
        ("train --algorithm.temperatures 0.1 -1", ["temperatures", "positive"]),
        ("train --device cuda:7", ["device = 'cuda:7'", "here are cpu and"]),
        ("train --resume nowhere", ["no run at 'nowhere'", "latest"]),
        ("eval nowhere", ["no run at 'nowhere'"]),
        ("eval zero --episodes 0", ["episodes = 0"]),
        ("plot latest", ["no run to take as 'latest'"]),
        ("play zero --video film.avi", ["video = 'film.avi'", ".gif, .mp4 or .png"]),
    ],
)
def test_bad_input_names_field_value_and_fix(
    here: Path, capsys: pytest.CaptureFixture[str], arguments: str, parts: list[str]
) -> None:
    try:
        code = main(arguments.split())
    except SystemExit as stopped:  # the parser's own way out
        code = stopped.code
    assert code == 2
    message = " ".join(capsys.readouterr().err.split())
    assert "Traceback" not in message
    for part in parts:
        assert part in message
    assert not list(here.iterdir()), "bad input leaves nothing behind"


def test_a_run_knows_its_own_task(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["eval", "latest", "--task", "bandit"]) == 2
    assert "was trained on 'multi-goal'" in capsys.readouterr().err


def test_latest_is_looked_for_where_it_was_put(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "bandit", "--log-root", "elsewhere", *TINY]) == 0
    assert main(["eval", "latest"]) == 2
    assert main(["eval", "latest", "--log-root", "elsewhere", "--json"]) == 0
    assert main(["train", "--resume", "latest", "--log_root=elsewhere", "--max-iterations", "3"]) == 0


def test_a_full_disk_is_named(
    trained: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    assert main(["export", "latest", "--out", "policy.pt"]) == 1
    assert "No space left on device" in capsys.readouterr().err
    assert not Path("policy.pt").exists()


@pytest.mark.parametrize(
    "arguments", ["train --num-env 4", "train --num-envs many", "eval", "train --algorithm.name x"]
)
def test_unparsable_input_is_refused_by_the_parser(arguments: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(arguments.split())
    assert stopped.value.code == 2
    assert capsys.readouterr().err


def test_bad_pictures_and_exports_are_refused(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plot", "latest", "--out", "curve.xyz"]) == 2
    assert "out = 'curve.xyz'" in capsys.readouterr().err
    assert main(["export", "latest", "--out", "policy.bin"]) == 2
    assert ".onnx, .pt, .safetensors" in capsys.readouterr().err


def test_doctor(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 0
    printed = capsys.readouterr().out
    assert "rsl-rl-lib" in printed
    assert "wandb" in printed


def test_doctor_names_the_line_that_mends(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from podpo import doctor, installation

    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(installation, "LIBRARIES", ("libnothing.so.1",))
    monkeypatch.setattr(doctor, "EXTRAS", (("absent", "pip install 'podpo[absent]'", "nobody"),))
    assert doctor.examine() == 0, "nothing that podpo itself needs"
    printed = " ".join(capsys.readouterr().out.split())
    assert "missing libnothing.so.1 apt-get install -y libgl1" in printed
    assert "missing, only for nobody pip install 'podpo[absent]'" in printed, "brackets are no markup"

    monkeypatch.setattr(doctor, "requires", lambda name: ["torch>=2.7", "no-such-thing[x]>=1", 'wandb; extra == "w"'])
    assert doctor.examine() == 1
    printed = " ".join(capsys.readouterr().out.split())
    assert "no-such-thing missing uv pip install 'no-such-thing[x]>=1'" in printed


def test_doctor_examines_a_source_tree(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from podpo import doctor

    def no_record(name: str) -> list[str]:
        raise PackageNotFoundError(name)

    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(doctor, "requires", no_record)
    assert doctor.examine() == 0
    assert "without being installed" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(("version", "code"), [("5.0.0", 1), ("5.0.1", 0), ("5.5.1rc1", 0), ("6.0.0", 1)])
def test_doctor_knows_which_hosts_are_supported(monkeypatch: pytest.MonkeyPatch, version: str, code: int) -> None:
    from podpo import doctor

    monkeypatch.setattr(doctor, "version", lambda name: version)
    assert doctor.examine() == code


WITHOUT_TORCH = """
import sys
class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "torch":
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Hidden())
from podpo.cli import main
sys.exit(main(["doctor"]))
"""


def test_doctor_answers_without_torch() -> None:
    """The very case it is for."""
    done = subprocess.run([sys.executable, "-c", WITHOUT_TORCH], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "rsl-rl-lib" in done.stdout
    assert "GPU" not in done.stdout


def test_an_unfinished_run_says_so(here: Path) -> None:
    folder = here / "logs" / "bandit" / "x"
    (folder / "params").mkdir(parents=True)
    (folder / "params" / "config.json").write_text('{"task": "bandit"}')
    with pytest.raises(ConfigError, match=r"no checkpoint .*last\.pt: it ended before the first"):
        find_run(str(folder))
    (folder / "checkpoints").mkdir()
    (folder / "checkpoints" / "best.pt").touch()
    assert find_run(str(folder), best=True)[1].name == "best.pt"
    with pytest.raises(ConfigError, match=r"no checkpoint .*last\.pt: there is .*best\.pt"):
        find_run(str(folder))


def test_help_is_quick() -> None:
    """Best of five, in processor time, which other work on the machine leaves alone; torch alone takes more."""
    times = []
    for _ in range(5):
        before = os.times()
        done = subprocess.run([sys.executable, "-m", "podpo", "--help"], capture_output=True, text=True)
        after = os.times()
        times.append(after.children_user + after.children_system - before.children_user - before.children_system)
        assert done.returncode == 0
        assert "train" in done.stdout
    assert 0 < min(times) < 0.5


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("podpo 0.")


def test_module_and_program_are_the_same() -> None:
    done = subprocess.run([sys.executable, "-m", "podpo", "tran"], capture_output=True, text=True)
    assert done.returncode == 2
    assert "did you mean 'train'" in done.stderr
