from .decoder import BertDecoder as BertDecoder
from .encoder import BertEncoder as BertEncoder
from .encoder_decoder import BertEncoderDecoder as BertEncoderDecoder
from .optimizers import BertAdamW as BertAdamW
from .optimizers import Lamb as Lamb
from .optimizers import WarmupLinearDecay as WarmupLinearDecay
