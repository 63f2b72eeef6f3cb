from .saved_model import export_model as export_model
