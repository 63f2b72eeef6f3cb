from .config import TrainConfig as TrainConfig
from .evaluation import evaluate as evaluate
from .finetune import train as train
from .several_runs import search_settings as search_settings
from .several_runs import train_seeds as train_seeds
from .several_runs import train_sizes as train_sizes
from .shrinking import shrink as shrink
