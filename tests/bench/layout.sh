#!/bin/sh
# An OCI image layout with one compressed layer from a root directory: layout.sh ROOT LAYOUT
set -eu
root=$1 layout=$2 blobs=$2/blobs/sha256
mkdir -p "$blobs"
digest() { sha256sum "$1" | cut -c1-64; }
size() { stat -c %s "$1"; }
keep() { name=$(digest "$1"); length=$(size "$1"); mv "$1" "$blobs/$name"; }
tar --create --numeric-owner --xattrs --sort=name --directory "$root" --file "$layout/layer.tar" .
plain=$(digest "$layout/layer.tar")
gzip -1 -n "$layout/layer.tar"
keep "$layout/layer.tar.gz"; layer=$name layer_size=$length
printf '{"architecture":"amd64","os":"linux","config":{"Cmd":["/bin/true"]},"rootfs":{"type":"layers","diff_ids":["sha256:%s"]}}' "$plain" > "$layout/blob"
keep "$layout/blob"; config=$name config_size=$length
printf '{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","config":{"mediaType":"application/vnd.oci.image.config.v1+json","digest":"sha256:%s","size":%s},"layers":[{"mediaType":"application/vnd.oci.image.layer.v1.tar+gzip","digest":"sha256:%s","size":%s}]}' \
    "$config" "$config_size" "$layer" "$layer_size" > "$layout/blob"
keep "$layout/blob"
printf '{"schemaVersion":2,"manifests":[{"mediaType":"application/vnd.oci.image.manifest.v1+json","digest":"sha256:%s","size":%s}]}' "$name" "$length" > "$layout/index.json"
printf '{"imageLayoutVersion":"1.0.0"}' > "$layout/oci-layout"
