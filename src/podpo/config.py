"""Every setting, as frozen dataclasses: what stands below a field is its help text on the command line.

Importing this module imports no torch, so that `podpo --help` answers at once.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from podpo.validation import ConfigError, require, require_known_choices

Scale = Literal["batch", "observation"] | float
Normalize = Literal["none", "per-temperature"]
Weighting = Literal["linear", "none", "log1p", "tanh", "V-norm"]
StepSize = Literal["constant", "linear", "adaptive"]
Deployment = Literal["zero", "sample", "mean"]
ActorInit = Literal["skip", "plain"]
AlgorithmName = Literal["podpo", "ppo"]
Optimizer = Literal["adam", "adamw", "sgd", "rmsprop"]
Activation = Literal[
    "elu", "selu", "relu", "crelu", "lrelu", "tanh", "sigmoid", "softplus", "gelu", "swish", "mish", "identity"
]


@dataclass(frozen=True, kw_only=True)
class NetworkConfig:
    """A multi-layer perceptron."""

    hidden_dims: tuple[int, ...] = (512, 256, 128)
    """Width of each hidden layer."""
    activation: Activation = "elu"
    """Activation function, by rsl_rl's name for it."""
    obs_normalization: bool = False
    """Normalise observations by their running mean and variance, inside the network."""

    def __post_init__(self) -> None:
        require_known_choices(self)
        require(
            len(self.hidden_dims) > 0 and min(self.hidden_dims) > 0,
            "hidden_dims",
            self.hidden_dims,
            "give at least one positive width, such as 256 128",
        )


@dataclass(frozen=True, kw_only=True)
class ActorConfig(NetworkConfig):
    """The one-step generator a = f(observation, noise)."""

    init: ActorInit = "skip"
    """`skip`: a = net(o, z) + noise_std * z, which starts with PPO's spread of actions. `plain`: a = net(o, z),
    which starts with almost none and does not recover (kept for the ablation)."""
    noise_std: float = 1.0
    """Spread of actions at the start, per dimension (PPO's init_std). For `ppo`, its initial std."""
    noise_dim: int | None = None
    """Dimension of the noise z; the action dimension when unset (the skip needs exactly that)."""
    output_gain: float = 0.01
    """Scale of the last layer's initial weights with `skip`, so that training starts at noise_std * z."""
    deployment: Deployment = "zero"
    """The action without exploration: at z = 0, at a sampled z, or the mean over num_mean_samples fixed z."""
    num_mean_samples: int = 8
    """Noise vectors of the `mean` deployment."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.noise_std > 0, "actor.noise_std", self.noise_std, "use a positive spread, such as 1.0")
        require(self.noise_dim is None or self.noise_dim > 0, "actor.noise_dim", self.noise_dim, "use 1 or more")
        require(self.num_mean_samples > 0, "actor.num_mean_samples", self.num_mean_samples, "use 1 or more")


@dataclass(frozen=True, kw_only=True)
class OnPolicyConfig:
    """What PODPO and PPO share: rollouts, advantages, epochs of minibatches, the critic."""

    gamma: float = 0.99
    """Discount factor."""
    lam: float = 0.95
    """Decay of generalised advantage estimation."""
    num_learning_epochs: int = 5
    """Passes over each rollout."""
    num_mini_batches: int = 4
    """Minibatches per pass."""
    learning_rate: float = 1e-3
    """Step size of the optimiser."""
    optimizer: Optimizer = "adam"
    """Optimiser."""
    value_loss_coef: float = 1.0
    """Weight of the value loss."""
    use_clipped_value_loss: bool = True
    """Clip the change of the value by clip_param, as PPO does."""
    clip_param: float = 0.2
    """Clip range of the value loss (and, for PPO, of the ratio)."""
    max_grad_norm: float = 1.0
    """Largest gradient norm of the critic (and, for PPO, of the actor)."""

    def __post_init__(self) -> None:
        require_known_choices(self)
        for name in ("gamma", "lam"):
            require(0 <= getattr(self, name) <= 1, name, getattr(self, name), "it lies between 0 and 1")
        for name in ("num_learning_epochs", "num_mini_batches"):
            require(getattr(self, name) >= 1, name, getattr(self, name), "use 1 or more")
        for name in ("learning_rate", "clip_param", "max_grad_norm"):
            require(getattr(self, name) > 0, name, getattr(self, name), "use a positive number")


@dataclass(frozen=True, kw_only=True)
class PODPOConfig(OnPolicyConfig):
    """Positive-Only Drifting Policy Optimization; the defaults are the paper's."""

    num_candidates: int = 8
    """G: fresh actions drawn for each positive observation."""
    temperatures: tuple[float, ...] = (0.02, 0.15, 2.0)
    """Softmax temperatures of the field, in units of the mean distance; their fields are summed."""
    beta: float = 0.1
    """Factor of the advantage weight. With Adam and separate networks it changes next to nothing."""
    weighting: Weighting = "linear"
    """Weight of a positive sample: beta |A|, beta, beta ln(1+|A|), beta tanh|A|, or |A| applied to V."""
    match_mean_weight: bool = False
    """Give the other weightings the mean weight of `linear`, so that they compare at one step size."""
    scale: Scale = "batch"
    """Distances are divided by their mean over the batch (the paper), over each observation, or a number."""
    normalize: Normalize = "none"
    """`per-temperature` gives each temperature's field the same RMS before the sum."""
    affinity_floor: float = 0.0
    """Least product of the two softmaxes (the original drifting models: 1e-6)."""
    mask_self: bool = True
    """A candidate does not repel itself. Without the mask the spread collapses."""
    pool_size: int = 1
    """Observations that share one contrastive set: 1 isolates each (the paper); many is global drifting, whose
    memory grows with the square of pool_size * num_candidates."""
    drift_rms: float | None = None
    """Rescale V to this root mean square in every minibatch (to compare numbers of candidates fairly)."""
    over_actions: Literal["sum", "mean"] = "sum"
    """The squared norm of the loss sums over action dimensions (the equation) or takes their mean."""
    average_over: Literal["positives", "batch"] = "positives"
    """The loss is divided by the number of positive samples (the paper) or of all samples."""
    step_size: StepSize = "constant"
    """`constant`; `linear` to zero over decay_iterations; `adaptive`, which holds the displacement
    E||f(o,z) - f_old(o,z)||^2 / spread^2 of an iteration near displacement_target."""
    decay_iterations: int | None = None
    """Length of the `linear` schedules; the run's max_iterations when unset."""
    displacement_target: float = 0.05
    """What the `adaptive` step size aims at."""
    exploration_std: float = 0.0
    """Standard deviation of noise added to the executed and stored action: a floor under exploration."""
    exploration_schedule: Literal["constant", "linear"] = "constant"
    """`linear` lets exploration_std fall to zero over decay_iterations."""
    ema_decay: float = 0.0
    """Per-iteration decay of an averaged actor, which is then the one evaluated and exported. 0: off."""
    exact_time_outs: bool = True
    """Bootstrap time-outs with V of the true final observation where the task hands it out."""
    init_from: str | None = None
    """A PPO checkpoint of rsl_rl whose Gaussian policy and critic training starts from, exactly."""

    def __post_init__(self) -> None:
        super().__post_init__()
        least = 2 if self.mask_self else 1  # one candidate alone has nothing to drift away from, and V is zero
        require(
            self.num_candidates >= least, "num_candidates", self.num_candidates, f"use {least} or more, 8 by default"
        )
        require(
            len(self.temperatures) > 0 and min(self.temperatures) > 0,
            "temperatures",
            self.temperatures,
            "give one or more positive temperatures",
        )
        require(self.beta > 0, "beta", self.beta, "use a positive factor, 0.1 by default")
        require(
            isinstance(self.scale, str) or self.scale > 0,
            "scale",
            self.scale,
            "use batch, observation or > 0",
        )
        require(self.affinity_floor >= 0, "affinity_floor", self.affinity_floor, "use 0 (off) or more")
        require(self.pool_size >= 1, "pool_size", self.pool_size, "use 1 (isolated) or more (pooled)")
        require(self.drift_rms is None or self.drift_rms > 0, "drift_rms", self.drift_rms, "use a positive number")
        require(self.displacement_target > 0, "displacement_target", self.displacement_target, "use > 0")
        require(self.exploration_std >= 0, "exploration_std", self.exploration_std, "use 0 (off) or more")
        require(0 <= self.ema_decay < 1, "ema_decay", self.ema_decay, "it lies in [0, 1); 0 is off")


@dataclass(frozen=True, kw_only=True)
class PPOConfig:
    """What only PPO has."""

    entropy_coef: float = 0.01
    """Weight of the entropy bonus."""
    schedule: Literal["adaptive", "fixed"] = "adaptive"
    """`adaptive` moves the learning rate to hold the KL divergence near desired_kl."""
    desired_kl: float = 0.01
    """KL divergence that the adaptive schedule aims at."""

    def __post_init__(self) -> None:
        require_known_choices(self, "ppo.")
        require(self.desired_kl > 0, "ppo.desired_kl", self.desired_kl, "use a positive number")


@dataclass(frozen=True, kw_only=True)
class AlgorithmConfig(PODPOConfig):
    """The algorithm and its networks."""

    name: AlgorithmName = "podpo"
    """Which algorithm trains."""
    actor: ActorConfig = field(default_factory=ActorConfig)
    critic: NetworkConfig = field(default_factory=NetworkConfig)
    ppo: PPOConfig = field(default_factory=PPOConfig)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.name == "podpo":
            self._refuse(self.ppo, "ppo.", PPOConfig, {})
        else:
            self._refuse(self, "", PODPOConfig, {f.name for f in fields(OnPolicyConfig)})
            self._refuse(self.actor, "actor.", ActorConfig, {f.name for f in fields(NetworkConfig)} | {"noise_std"})

    def _refuse(self, config: Any, prefix: str, owner: type[Any], shared: Collection[str]) -> None:
        """Settings of the other algorithm would be silently ignored."""
        for f in fields(owner):
            value = getattr(config, f.name)
            if f.name not in shared and value != f.default:
                raise ConfigError(
                    f"algorithm.{prefix}{f.name} = {value!r} means nothing to {self.name}: "
                    f"leave it out, or set algorithm.name to the other algorithm."
                )


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """One training run."""

    task: str
    """Name of the task."""
    algorithm: AlgorithmConfig = field(default_factory=AlgorithmConfig)
    num_envs: int = 256
    """Environments that run side by side."""
    num_processes: int = 1
    """Processes that share the environments, on a CPU: a simulator computes on one core alone."""
    num_steps_per_env: int = 24
    """Steps of each environment in one rollout."""
    desynchronize_episodes: bool = False
    """Start training with episodes at different times of their course, as rsl_rl's init_at_random_ep_len does."""
    max_iterations: int = 300
    """Rollouts (and updates) until the run is done; a resumed run stops at the same number. Another number than at
    the start stretches or shortens the linear schedules."""
    max_time: float | None = None
    """Wall-clock limit in seconds. The run then saves, evaluates and ends."""
    seed: int = 1
    """Seed of weights, noise and task."""
    device: str = "auto"
    """cpu, cuda, cuda:1, ...; `auto` is what suits the task: a GPU for simulated robots, if there is one."""
    checkpoint_interval: int = 25
    """Iterations between checkpoints."""
    eval_interval: int = 25
    """Iterations between noise-free evaluations."""
    eval_episodes: int = 256
    """Episodes of one evaluation, of each deployment."""
    eval_deployments: tuple[Deployment, ...] = ("zero", "sample")
    """What an evaluation measures: the policy without noise (always), sampled, as a mean over several noises."""
    film: bool = False
    """End by filming the policy, into the run folder."""
    logger: Literal["tensorboard", "wandb", "none"] = "tensorboard"
    """Where metrics go besides progress.csv."""
    log_root: str = "logs"
    """Folder that holds the run folders."""

    def __post_init__(self) -> None:
        for name in (
            "num_envs",
            "num_processes",
            "num_steps_per_env",
            "max_iterations",
            "checkpoint_interval",
            "eval_interval",
            "eval_episodes",
        ):
            require(getattr(self, name) >= 1, name, getattr(self, name), "use 1 or more")
        require_known_choices(self)
        require("zero" in self.eval_deployments, "eval_deployments", self.eval_deployments, "keep zero among them")
        require(0 <= self.seed < 2**31, "seed", self.seed, "use 0 or more, below 2^31")
        require(self.max_time is None or self.max_time > 0, "max_time", self.max_time, "use seconds > 0")
        require(
            self.num_processes <= self.num_envs, "num_processes", self.num_processes, f"use {self.num_envs} or fewer"
        )
        samples = self.num_envs * self.num_steps_per_env
        require(
            samples >= self.algorithm.num_mini_batches,
            "algorithm.num_mini_batches",
            self.algorithm.num_mini_batches,
            f"a rollout has only {samples} samples",
        )
