// The command image writes an OCI image layout with one image for each architecture, of a single layer, which is all that
// the image has. The result depends only on the arguments and the layers.
//
//	image -version 0.1.0 -revision COMMIT -created SECONDS -out FOLDER amd64=layer.tar arm64=layer.tar
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

func main() {
	version := flag.String("version", "", "the version of the command")
	revision := flag.String("revision", "", "the commit")
	created := flag.Int64("created", 0, "the time of the commit, in seconds since 1970")
	out := flag.String("out", "", "the folder that is made")
	flag.Parse()
	if err := write(*out, *version, *revision, time.Unix(*created, 0).UTC(), flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func write(out, version, revision string, created time.Time, layers []string) error {
	if out == "" || version == "" || revision == "" || len(layers) == 0 {
		return errors.New("-out, -version, -revision and at least one ARCHITECTURE=LAYER are needed")
	}
	labels := map[string]string{
		"org.opencontainers.image.title":    "kvferry",
		"org.opencontainers.image.version":  version,
		"org.opencontainers.image.revision": revision,
		"org.opencontainers.image.created":  created.Format(time.RFC3339),
		"org.opencontainers.image.source":   "https://github.com/kvferry/kvferry",
		"org.opencontainers.image.licenses": "Apache-2.0",
	}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, layer := range layers {
		arch, path, ok := strings.Cut(layer, "=")
		if !ok {
			return fmt.Errorf("%q is not ARCHITECTURE=LAYER", layer)
		}
		img, err := image(arch, path, created, labels)
		if err != nil {
			return err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{
			Platform: &v1.Platform{OS: "linux", Architecture: arch}}})
	}
	// The layout has one entry, so that readers need not choose: the index of all architectures. Its name is a tag, which
	// may not have a plus sign.
	tag := strings.ReplaceAll(version, "+", "-")
	named := mutate.AppendManifests(mutate.IndexMediaType(empty.Index, types.OCIImageIndex), mutate.IndexAddendum{
		Add: mutate.Annotations(index, labels).(v1.ImageIndex), Descriptor: v1.Descriptor{Annotations: map[string]string{
			"org.opencontainers.image.ref.name": tag, "io.containerd.image.name": "docker.io/kvferry/kvferry:" + tag}}})
	_, err := layout.Write(out, named)
	return err
}

// nobody is the user of distroless images that are not root's.
const nobody = "65532:65532"

func image(arch, path string, created time.Time, labels map[string]string) (v1.Image, error) {
	layer, err := tarball.LayerFromFile(path, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	img, err := mutate.Append(base, mutate.Addendum{Layer: layer, MediaType: types.OCILayer, History: v1.History{
		Created: v1.Time{Time: created}, CreatedBy: "make release"}})
	if err != nil {
		return nil, err
	}
	config, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = "linux", arch, v1.Time{Time: created}
	config.Config = v1.Config{Entrypoint: []string{"/kvferry"}, User: nobody, WorkingDir: "/", Labels: labels}
	return mutate.ConfigFile(img, config)
}
