from .documents import CorpusReport as CorpusReport
from .documents import RawDocument as RawDocument
from .documents import raw_documents as raw_documents
from .documents import sentences_of as sentences_of
from .documents import texts_of as texts_of
from .vocabulary_learning import learn_vocabulary as learn_vocabulary
from .vocabulary_learning import write_vocabulary as write_vocabulary
