from .client import AsyncClient as AsyncClient
from .client import Client as Client
from .config import ServeConfig as ServeConfig
from .forms import bench as bench
from .server import Server as Server
from .server import serve as serve
