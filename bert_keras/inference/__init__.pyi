from .embedder import embed as embed
from .embedder import load_embedder as load_embedder
from .features import write_features as write_features
from .mining import mine_negatives as mine_negatives
from .predictor import Predictor as Predictor
from .predictor import load_predictor as load_predictor
from .search import SearchIndex as SearchIndex
from .zero_shot import save_classes as save_classes
