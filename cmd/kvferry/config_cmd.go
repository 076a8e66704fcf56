package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/kvferry/kvferry/runtime/config"
)

func newConfigCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "config",
		Short:   "Work with configuration files",
		Example: "  kvferry config check node.yaml",
	}
	cmd.AddCommand(newConfigCheckCommand())
	return cmd
}

// A checkedFile is a file without problems of its own, as --json shows it. Of a directory's it has File and Role.
type checkedFile struct {
	File    string `json:"file"`
	Role    string `json:"role"` // of a node, or directory
	Mode    string `json:"mode"` // push, pull or delayed pull
	Channel string `json:"transfer_channel"`
	Device  string `json:"pd_buffer_device"` // where the pool really lies
	Ranks   int    `json:"ranks"`            // 0 for a sender whose lists name none
	// BufferBytes is rounded up to whole pages where the file has a layout; Pages and PageBytes
	// are 0 where it has none.
	BufferBytes uint64 `json:"buffer_bytes"`
	PageBytes   uint64 `json:"page_bytes"`
	Pages       uint32 `json:"pages"`
	// HostBytes and HostPages are those of the pool that chunks are offloaded into, if they are.
	HostBytes uint64 `json:"host_bytes,omitempty"`
	HostPages uint32 `json:"host_pages,omitempty"`
	// ArenaPages lie behind Pages: what peers read is copied there.
	ArenaPages uint32 `json:"arena_pages,omitempty"`
}

const roleDirectory = "directory"

func newConfigCheckCommand() *cobra.Command {
	var asJSON, noEnv, forNode bool
	cmd := &cobra.Command{
		Use:   "check FILE...",
		Short: "Say everything that is wrong with configuration files",
		Long: `check reads each file as a node or a directory would, variables of the environment
included, and prints every problem with its place and its remedy. A file with keys of
LMCache's controller, or below extra_config.kvferry.directory, is a directory's. Between senders
and receivers among the files it also says what keeps them from working together:
modes, what a page holds, data planes, ranks, ports on one host, times, limits.
Notes are about settings that were accepted and do not do here what they say;
they are no problems.

A file may leave the layout of chunks to the engine that embeds the node. kvferry
node has no engine: --node checks that the file says all that it needs.`,
		Example: `  kvferry config check receiver.yaml
  kvferry config check --node receiver.yaml
  kvferry config check --no-env --json sender.yaml receiver.yaml`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, files []string) error {
			if len(files) == 0 {
				return usagef("name the files to check")
			}
			env := os.LookupEnv
			if noEnv {
				env = nil
			}
			var configs []*config.Config
			var directories []*config.Directory
			problems, notes := []config.Problem{}, []config.Problem{} // [] in JSON, not null.
			if !noEnv {
				notes = append(notes, config.StrayVariables(os.Environ())...)
			}
			for _, file := range files {
				data, err := os.ReadFile(file)
				if err != nil {
					return usageError{err}
				}
				var c *config.Config
				var d *config.Directory
				if config.DescribesDirectory(data) {
					d, err = config.ParseDirectory(file, data, env)
				} else {
					c, err = config.Parse(file, data, env)
				}
				var refused *config.Error
				switch {
				case errors.As(err, &refused):
					problems = append(problems, refused.Problems...)
					notes = append(notes, refused.Notes...)
				case err != nil:
					return err
				case d != nil:
					directories = append(directories, d)
				default:
					configs = append(configs, c)
					if forNode {
						problems = append(problems, c.Standalone()...)
					}
				}
			}
			problems = append(problems, compareAll(configs)...)
			if err := printCheck(cmd.OutOrStdout(), configs, directories, notes, problems, asJSON); err != nil {
				return err
			}
			if len(problems) > 0 {
				return errFinding
			}
			return nil
		},
	}
	addJSONFlag(cmd, &asJSON)
	cmd.Flags().BoolVar(&forNode, "node", false,
		"check for kvferry node, too, which has no engine to give what the file leaves out")
	cmd.Flags().BoolVar(&noEnv, "no-env", false, "leave LMCACHE_ variables of the environment aside")
	return cmd
}

// compareAll compares each sender with each receiver. Two files of senders, or of receivers, are two nodes of a
// larger deployment: they need not go together, but cannot bind the same ports of one host.
func compareAll(configs []*config.Config) (problems []config.Problem) {
	for i, a := range configs {
		for _, b := range configs[i+1:] {
			if a.GoesWith(b) {
				problems = append(problems, config.Compare(a, b)...)
			} else {
				problems = append(problems, config.ComparePorts(a, b)...)
			}
		}
	}
	return problems
}

func printCheck(w io.Writer, configs []*config.Config, directories []*config.Directory,
	notes, problems []config.Problem, asJSON bool) error {
	files := make([]checkedFile, len(configs))
	for i, c := range configs {
		files[i] = checkedFile{c.Name, c.Role.String(), c.Pull.String(), c.Channel.String(), c.Device.String(), c.Ranks(),
			c.BufferBytes, c.PageBytes, c.Pages, c.HostBytes, c.HostPages, c.ArenaPages}
		notes = append(notes, c.Notes...)
	}
	for _, d := range directories {
		files = append(files, checkedFile{File: d.Name, Role: roleDirectory})
		notes = append(notes, d.Notes...)
	}
	if asJSON {
		return printJSON(w, struct {
			Files    []checkedFile    `json:"files"`
			Notes    []config.Problem `json:"notes"`
			Problems []config.Problem `json:"problems"`
		}{files, notes, problems})
	}
	for _, f := range files {
		line := f.File + ": " + f.Role
		if f.Role != roleDirectory {
			line += ", " + f.Mode + ", " + f.pool()
		}
		if _, err := fmt.Fprintln(w, line); err != nil {
			return err
		}
	}
	for _, p := range append(notes, problems...) {
		if _, err := fmt.Fprintln(w, p); err != nil {
			return err
		}
	}
	return nil
}

func (f checkedFile) pool() string {
	where := ""
	if f.Device != config.DeviceCPU.String() {
		where = " on " + f.Device
	}
	switch {
	case f.Pages == 0:
		return fmt.Sprintf("%d bytes of pages whose layout an engine gives (see --node)%s", f.BufferBytes+f.HostBytes, where)
	case f.HostPages > 0:
		return fmt.Sprintf("%d pages of %d bytes%s and %d to offload into", f.Pages, f.PageBytes, where, f.HostPages)
	case f.ArenaPages > 0:
		return fmt.Sprintf("%d pages of %d bytes%s and %d to copy to for peers", f.Pages, f.PageBytes, where, f.ArenaPages)
	default:
		return fmt.Sprintf("%d pages of %d bytes%s", f.Pages, f.PageBytes, where)
	}
}
