from .convert import convert as convert
from .convert import from_keras_hub as from_keras_hub
from .convert import to_keras_hub as to_keras_hub
from .loading import load_model as load_model
from .loading import new_model as new_model
from .model_folder import save_model as save_model
from .task_model import TaskModel as TaskModel
