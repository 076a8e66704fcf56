package main

import (
	"cmp"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/kvferry/kvferry/runtime/buildinfo"
)

// versionReport is what kvferry version says of this binary.
type versionReport struct {
	buildinfo.Build
	// Cgo is true if this binary can load the libraries of NPUs and libnixl.
	Cgo bool `json:"cgo"`
}

func newVersionCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version, the commit and the Go version of this binary",
		Long: `version prints the version and the commit of this binary. A build of a commit without a
release's tag has the suffix -dev with the time of the commit, and sorts before the release.

The line cgo says whether the binary can use NPUs and libnixl. Binaries without cgo need no
C library; the one in the container image is such a binary.`,
		Example: `  kvferry version
  kvferry version --json`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			v := currentVersion()
			if asJSON {
				return printJSON(cmd.OutOrStdout(), v)
			}
			_, err := fmt.Fprint(cmd.OutOrStdout(), v.text())
			return err
		},
	}
	addJSONFlag(cmd, &asJSON)
	return cmd
}

func currentVersion() versionReport { return versionReport{buildinfo.Current(), buildinfo.Cgo} }

func (v versionReport) text() string {
	commit := cmp.Or(v.Commit, "unknown")
	if v.Modified {
		commit += ", modified"
	}
	cgo := "yes: NPUs and libnixl can be used"
	if !v.Cgo {
		cgo = "no: NPUs and libnixl cannot be used"
	}
	return fmt.Sprintf("kvferry %s\ncommit  %s\ngo      %s %s\ncgo     %s\n", v.Version, commit, v.Go, v.Platform, cgo)
}
