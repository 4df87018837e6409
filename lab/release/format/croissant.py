"""The Croissant 1.1 description (JSON-LD) of a release: files with their hashes, tables by column.

https://docs.mlcommons.org/croissant/docs/croissant-spec-1.1.html
"""

from __future__ import annotations

from typing import Any

from lab.release import RELEASE_VERSION
from lab.release.format import canonical, schema
from lab.release.format.text import DESCRIPTION, LICENSE_URL, TITLE, citation

# The specification's standard context.
CONTEXT: dict[str, Any] = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "arrayShape": "cr:arrayShape",
    "citeAs": "cr:citeAs",
    "column": "cr:column",
    "conformsTo": "dct:conformsTo",
    "containedIn": "cr:containedIn",
    "cr": "http://mlcommons.org/croissant/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "dct": "http://purl.org/dc/terms/",
    "description": {"@container": "@language"},
    "equivalentProperty": "cr:equivalentProperty",
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "extract": "cr:extract",
    "field": "cr:field",
    "fileProperty": "cr:fileProperty",
    "fileObject": "cr:fileObject",
    "fileSet": "cr:fileSet",
    "format": "cr:format",
    "includes": "cr:includes",
    "isArray": "cr:isArray",
    "isLiveDataset": "cr:isLiveDataset",
    "jsonPath": "cr:jsonPath",
    "key": "cr:key",
    "md5": "cr:md5",
    "name": {"@container": "@language"},
    "parentField": "cr:parentField",
    "path": "cr:path",
    "recordSet": "cr:recordSet",
    "references": "cr:references",
    "regex": "cr:regex",
    "repeated": "cr:repeated",
    "replace": "cr:replace",
    "samplingRate": "cr:samplingRate",
    "sc": "https://schema.org/",
    "separator": "cr:separator",
    "source": "cr:source",
    "subField": "cr:subField",
    "transform": "cr:transform",
}


def describe(tables: dict[str, bytes], published: str) -> dict[str, Any]:
    """The description of these table files (name -> bytes); `published` is an ISO date."""
    return {
        "@context": CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.1",
        "name": "attention-lab-measurements",
        "alternateName": TITLE,
        "description": DESCRIPTION,
        "license": LICENSE_URL,
        "version": RELEASE_VERSION,
        "datePublished": published,
        "creator": {"@type": "sc:Organization", "name": "attention-lab contributors"},
        "citeAs": citation(published),
        "isLiveDataset": False,
        "distribution": [_file(name, data) for name, data in tables.items()],
        "recordSet": [_record_set(name) for name in tables],
    }


def _file(table: str, data: bytes) -> dict[str, Any]:
    return {
        "@type": "cr:FileObject",
        "@id": f"{table}.jsonl",
        "name": f"{table}.jsonl",
        "contentUrl": f"{table}.jsonl",
        "contentSize": f"{len(data)} B",
        "encodingFormat": "application/jsonlines",
        "sha256": canonical.sha256(data),
    }


def _record_set(table: str) -> dict[str, Any]:
    fields = []
    for column in schema.columns(table):
        with_unit = f"{column.description} [{column.unit}]" if column.unit else column.description
        date = column.name.endswith("_at")
        fields.append(
            {
                "@type": "cr:Field",
                "@id": f"{table}/{column.name}",
                "name": column.name,
                "description": with_unit,
                "dataType": "sc:DateTime" if date else schema.CROISSANT_TYPES[column.type],
                "source": {
                    "fileObject": {"@id": f"{table}.jsonl"},
                    "extract": {"column": column.name},
                },
            }
        )
    return {"@type": "cr:RecordSet", "@id": table, "name": table, "field": fields}
