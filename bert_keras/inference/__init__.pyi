from .beam import run_beam_predictions as run_beam_predictions
from .predictor import Predictor as Predictor
from .predictor import load_predictor as load_predictor
from .zero_shot import save_classes as save_classes
