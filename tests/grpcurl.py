"""A stand-in for grpcurl, as far as the documentation uses it: it lists, describes and calls by reflection alone.

python -m tests.grpcurl -plaintext [-H HEADER] [-d JSON] ADDRESS [list SERVICE | describe MESSAGE | SERVICE/METHOD]
"""

from __future__ import annotations

import argparse
import sys

import grpc
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.json_format import MessageToJson, Parse
from google.protobuf.message_factory import GetMessageClass
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

SECONDS = 100


def main() -> None:
    """Do what the words say."""
    parser = argparse.ArgumentParser()
    parser.add_argument("-plaintext", action="store_true", required=True)
    parser.add_argument("-H", dest="header", default="")
    parser.add_argument("-d", dest="data", default="{}")
    parser.add_argument("address")
    parser.add_argument("words", nargs="+")
    asked = parser.parse_args()
    with grpc.insecure_channel(asked.address) as channel:
        pool = DescriptorPool(ProtoReflectionDescriptorDatabase(channel))
        match asked.words:
            case ["list", service]:
                sys.stdout.writelines(f"{method.full_name}\n" for method in pool.FindServiceByName(service).methods)
            case ["describe", message]:
                sys.stdout.writelines(f"{field.name}\n" for field in pool.FindMessageTypeByName(message).fields)
            case [path]:
                service, _, name = path.partition("/")
                method = pool.FindServiceByName(service).methods_by_name[name]
                request, reply = GetMessageClass(method.input_type), GetMessageClass(method.output_type)
                send = channel.unary_unary(
                    f"/{path}", request_serializer=request.SerializeToString, response_deserializer=reply.FromString
                )
                header, _, value = asked.header.partition(": ")
                answer = send(Parse(asked.data, request()), metadata=[(header.lower(), value)], timeout=SECONDS)
                sys.stdout.write(MessageToJson(answer) + "\n")


if __name__ == "__main__":
    main()
