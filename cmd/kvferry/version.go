package main

import (
	"fmt"
	"regexp"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
)

// releaseVersion is the version that this source will be released as. The Python package has the same version. A build
// of a tagged module has the tag's version.
const releaseVersion = "0.1.0"

// stampedCommit is set by the Makefile's linker flags. Builds without the flags get the commit from Go, if they were
// made in a repository.
var stampedCommit string

// A build describes the source of this binary.
type build struct {
	Version string `json:"version"`
	Commit  string `json:"commit"`
	// Modified is true if the work tree had changes. It is false if that is not known.
	Modified bool   `json:"modified"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func newVersionCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version, the commit and the Go version of this binary",
		Example: `  kvferry version
  kvferry version --json`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			b := currentBuild()
			if asJSON {
				return printJSON(cmd.OutOrStdout(), b)
			}
			_, err := fmt.Fprint(cmd.OutOrStdout(), b.versionText())
			return err
		},
	}
	addJSONFlag(cmd, &asJSON)
	return cmd
}

var releaseTag = regexp.MustCompile(`^v\d+\.\d+\.\d+(-(alpha|beta|rc)[.\d]*)?$`)

func currentBuild() build {
	b := build{Version: releaseVersion, Commit: stampedCommit, Go: runtime.Version(),
		Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	// Between tags, Go derives a version from the commit, which is printed separately.
	if tag := info.Main.Version; releaseTag.MatchString(tag) {
		b.Version = strings.TrimPrefix(tag, "v")
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Commit = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b
}

func (b build) versionText() string {
	commit := b.Commit
	if commit == "" {
		commit = "unknown"
	}
	if b.Modified {
		commit += ", modified"
	}
	return fmt.Sprintf("kvferry %s\ncommit  %s\ngo      %s %s\n", b.Version, commit, b.Go, b.Platform)
}
