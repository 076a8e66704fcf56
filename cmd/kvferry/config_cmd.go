package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

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

// A checkedFile describes a node's file that has no problems of its own, in the form that --json prints.
type checkedFile struct {
	File    string `json:"file"`
	Role    string `json:"role"`
	Mode    string `json:"mode"` // the value of config.Config.TransferMode
	Channel string `json:"transfer_channel"`
	Device  string `json:"pd_buffer_device"` // the device that really has the pool
	Ranks   int    `json:"ranks"`            // 0 for a sender whose lists name none
	// BufferBytes is rounded up to whole pages if the file has a layout. If the file has no layout, Pages and PageBytes
	// are 0.
	BufferBytes uint64 `json:"buffer_bytes"`
	PageBytes   uint64 `json:"page_bytes"`
	Pages       uint32 `json:"pages"`
	// ArenaPages is the number of pages after Pages, into which chunks are copied for peers to read.
	ArenaPages uint32 `json:"arena_pages,omitempty"`
	// NPUPages is the size of a second pool in the NPU's memory, for chunks that peers share.
	NPUPages uint32 `json:"npu_pages,omitempty"`
}

// A checkedDirectory describes a directory's file that has no problems of its own, in the form that --json prints.
type checkedDirectory struct {
	File           string           `json:"file"`
	Role           string           `json:"role"` // directory
	Host           string           `json:"host"` // empty: every interface
	Ports          []directoryPorts `json:"ports"`
	SilenceSeconds float64          `json:"silence_seconds"` // 0: no worker is dropped
	OnlyHeartbeats bool             `json:"only_heartbeats"` // it is that of workers that send heartbeats
	Log            string           `json:"log,omitempty"`   // that it shares with other directories
}

func newConfigCheckCommand() *cobra.Command {
	var asJSON, noEnv, forNode bool
	cmd := &cobra.Command{
		Use:   "check FILE...",
		Short: "Say everything that is wrong with configuration files",
		Long: `check reads each file as a node or a directory would, LMCACHE_ and
LMCACHE_CONTROLLER_ variables of the environment included, and prints every
problem with its place and its remedy. The keys of a file say whose it is.
Between senders and receivers among the files it also says what keeps them from
working together: modes, what a page holds, data planes, ranks, ports on one host,
times, limits. Between nodes that share and directories: addresses, ports on one
host, heartbeats, the size of messages; between directories, ports and what they
disagree on of a log that they share. A proxy has no file: kvferry proxy takes
arguments alone.

Notes are about settings that were accepted and do not do here what they say;
they are no problems.

A file may leave the layout of chunks to the engine that embeds the node. kvferry
node has no engine: --node checks that the file says all that it needs.`,
		Example: `  kvferry config check receiver.yaml
  kvferry config check --node receiver.yaml
  kvferry config check --no-env --json sender.yaml receiver.yaml
  kvferry config check directory.yaml node-1.yaml node-2.yaml`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, files []string) error {
			if len(files) == 0 {
				return usagef("name the files to check")
			}
			env := os.LookupEnv
			if noEnv {
				env = nil
			}
			// [] in JSON, not null.
			c := configCheck{notes: []config.Problem{}, problems: []config.Problem{}}
			ofDirectories := false
			for _, file := range files {
				data, err := os.ReadFile(file)
				if err != nil {
					return usageError{err}
				}
				ofDirectories = ofDirectories || config.IsDirectory(data)
				if err := c.read(file, data, env); err != nil {
					return err
				}
			}
			if !noEnv {
				stray := config.StrayVariables(os.Environ())
				if ofDirectories {
					stray = append(stray, config.StrayDirectoryVariables(os.Environ())...)
				}
				c.notes = append(stray, c.notes...)
			}
			if forNode {
				for _, n := range c.nodes {
					c.problems = append(c.problems, n.CheckStandalone()...)
				}
			}
			c.compare()
			if err := c.print(cmd.OutOrStdout(), asJSON); err != nil {
				return err
			}
			if len(c.problems) > 0 {
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

// A configCheck holds the files that check has read and the problems that it found.
type configCheck struct {
	nodes           []*config.Config
	directories     []*config.Directory
	notes, problems []config.Problem
}

// read reads one file as a node's or a directory's file, depending on the file's keys. It fails only if the file could
// not be checked.
func (c *configCheck) read(file string, data []byte, env func(string) (string, bool)) error {
	node, directory, err := (*config.Config)(nil), (*config.Directory)(nil), error(nil)
	if config.IsDirectory(data) {
		directory, err = config.ParseDirectory(file, data, env)
	} else {
		node, err = config.Parse(file, data, env)
	}
	var refused *config.Error
	switch {
	case errors.As(err, &refused):
		c.problems = append(c.problems, refused.Problems...)
		c.notes = append(c.notes, refused.Notes...)
	case err != nil:
		return err
	case directory != nil:
		c.directories = append(c.directories, directory)
		c.notes = append(c.notes, directory.Notes...)
	default:
		c.nodes = append(c.nodes, node)
		c.notes = append(c.notes, node.Notes...)
	}
	return nil
}

// compare compares each sender with each receiver, each node with the directories, and the directories with each other.
// Two files of senders, or of receivers, are two nodes of a larger deployment. Two such nodes need not match, but
// cannot bind the same ports of one host.
func (c *configCheck) compare() {
	for i, a := range c.nodes {
		for _, b := range c.nodes[i+1:] {
			if a.CanTransferWith(b) {
				c.problems = append(c.problems, config.Compare(a, b)...)
			} else {
				c.problems = append(c.problems, config.ComparePorts(a, b)...)
			}
		}
	}
	problems, notes := config.CompareDirectories(c.nodes, c.directories)
	c.problems, c.notes = append(c.problems, problems...), append(c.notes, notes...)
}

func (c *configCheck) print(w io.Writer, asJSON bool) error {
	files := make([]checkedFile, len(c.nodes))
	for i, n := range c.nodes {
		files[i] = checkedFile{n.Name, n.Role.String(), n.TransferMode(), n.Channel.String(), n.PoolDevice().String(), n.RankCount(),
			n.BufferBytes, n.PageBytes, n.Pages, n.ArenaPages, n.NPUPages}
	}
	directories := make([]checkedDirectory, len(c.directories))
	for i, d := range c.directories {
		directories[i] = checkedDirectory{File: d.Name, Role: "directory", Host: d.Host,
			SilenceSeconds: d.WorkerTimeout.Seconds(), OnlyHeartbeats: d.OnlyHeartbeats}
		for _, m := range d.Monitors {
			directories[i].Ports = append(directories[i].Ports, directoryPorts{m.Pull, m.Reply, m.Heartbeat})
		}
		if d.Shared.Addr.Host != "" {
			directories[i].Log = d.Shared.Addr.String()
		}
	}
	if asJSON {
		return printJSON(w, struct {
			Files       []checkedFile      `json:"files"`
			Directories []checkedDirectory `json:"directories"`
			Notes       []config.Problem   `json:"notes"`
			Problems    []config.Problem   `json:"problems"`
		}{files, directories, c.notes, c.problems})
	}
	for _, f := range files {
		if _, err := fmt.Fprintf(w, "%s: %s, %s, %s\n", f.File, f.Role, f.Mode, f.pool()); err != nil {
			return err
		}
	}
	for i, d := range directories {
		if _, err := fmt.Fprintf(w, "%s: directory on %s%s; %s\n", d.File, cmp.Or(d.Host, "every interface"), d.ports(),
			c.directories[i].DescribeTimeout()); err != nil {
			return err
		}
	}
	for _, p := range slices.Concat(c.notes, c.problems) {
		if _, err := fmt.Fprintln(w, p); err != nil {
			return err
		}
	}
	return nil
}

func (d checkedDirectory) ports() string {
	var b strings.Builder
	for _, p := range d.Ports {
		fmt.Fprintf(&b, ", pull %d, reply %d", p.Pull, p.Reply)
		if p.Heartbeat != 0 {
			fmt.Fprintf(&b, ", heartbeat %d", p.Heartbeat)
		}
	}
	return b.String()
}

func (f checkedFile) pool() string {
	if f.NPUPages > 0 {
		return fmt.Sprintf("%s, beside %d on the NPU", f.first(), f.NPUPages)
	}
	return f.first()
}

func (f checkedFile) first() string {
	where := ""
	if f.Device != config.DeviceCPU.String() {
		where = " on " + f.Device
	}
	switch {
	case f.Pages == 0:
		return fmt.Sprintf("%d bytes of pages whose layout an engine gives (see --node)%s", f.BufferBytes, where)
	case f.ArenaPages > 0:
		return fmt.Sprintf("%d pages of %d bytes%s and %d to copy to for peers", f.Pages, f.PageBytes, where, f.ArenaPages)
	default:
		return fmt.Sprintf("%d pages of %d bytes%s", f.Pages, f.PageBytes, where)
	}
}
