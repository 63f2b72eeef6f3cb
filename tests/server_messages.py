"""Messages of tensorflow/serving that the package tensorflow-serving-api leaves out.

They are built from the names, numbers and types in `session_bundle_config.proto` and
`monitoring_config.proto`; a text file that one of them parses has fields that exist.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import (
    descriptor_pb2,
    descriptor_pool,
    message_factory,
    text_format,
    wrappers_pb2,
)

_INT, _BOOL, _TEXT = ".google.protobuf.Int64Value", "bool", "string"
_FIELDS = {
    "BatchingParameters": {
        1: ("max_batch_size", _INT),
        2: ("batch_timeout_micros", _INT),
        3: ("max_enqueued_batches", _INT),
        4: ("num_batch_threads", _INT),
        5: ("thread_pool_name", ".google.protobuf.StringValue"),
        7: ("pad_variable_length_inputs", _BOOL),
        8: ("enable_large_batch_splitting", ".google.protobuf.BoolValue"),
        9: ("max_execution_batch_size", _INT),
    },
    "MonitoringConfig": {1: ("prometheus_config", ".serving.PrometheusConfig")},
    "PrometheusConfig": {1: ("enable", _BOOL), 2: ("path", _TEXT)},
}


def _file() -> descriptor_pb2.FileDescriptorProto:
    field_type = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(
        name="serving.proto",
        package="serving",
        syntax="proto3",
        dependency=[wrappers_pb2.DESCRIPTOR.name],
    )
    kinds = {_BOOL: field_type.TYPE_BOOL, _TEXT: field_type.TYPE_STRING}
    for name, fields in _FIELDS.items():
        message = file.message_type.add(name=name)
        for number, (key, kind) in fields.items():
            field = message.field.add(name=key, number=number)
            field.label = field_type.LABEL_OPTIONAL
            field.type = kinds.get(kind, field_type.TYPE_MESSAGE)
            if kind not in kinds:
                field.type_name = kind
    return file


def parsed(name: str, text: str) -> Any:
    """Return the message of a text proto; raise if a field does not exist."""
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(wrappers_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(_file())
    found = pool.FindMessageTypeByName(f"serving.{name}")
    return text_format.Parse(text, message_factory.GetMessageClass(found)())
