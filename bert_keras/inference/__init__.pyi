from .embedder import embed as embed
from .embedder import load_embedder as load_embedder
from .features import write_features as write_features
from .predictor import Predictor as Predictor
from .predictor import load as load
from .search import Search as Search
