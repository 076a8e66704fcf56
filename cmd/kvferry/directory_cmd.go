package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvferry/kvferry/runtime/config"
	"github.com/kvferry/kvferry/runtime/control/valkey"
	"github.com/kvferry/kvferry/runtime/control/zmq"
	"github.com/kvferry/kvferry/runtime/directory"
)

func newDirectoryCommand() *cobra.Command {
	var file, ports string
	var every time.Duration
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "directory [--config FILE]",
		Short: "Run a directory: which worker has which chunk",
		Long: `directory answers who has the chunks of a prefix, as workers report them. LMCache's
workers take it for their controller: it speaks the messages of that one on the
same sockets, and its file has that one's keys; so have variables of the
environment that begin with LMCACHE_CONTROLLER_. Without a file it serves the
standard ports, pull 8300 and reply 8400, on 127.0.0.1: workers of other hosts
reach it if controller_host names an address of this one, or 0.0.0.0.

What it knows are hints that workers tell again, so nothing is kept on disk: one
that was restarted asks each worker that sends heartbeats for all that it has.
Several that name one Valkey or Redis server by directory.log tell each other
what they hear, so each answers for all; without it they go on by themselves.

With --every it prints what it knows that often, and once when it stops; with
--json each as a line of JSON, after a first one with the ports.

SIGTERM and SIGINT stop it.`,
		Example: `  kvferry directory
  kvferry directory --ports '{"pull": 8300, "reply": 8400, "heartbeat": 8500}' --every 10s
  kvferry directory --config directory.yaml --every 10s --json`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if every < 0 {
				return usagef("--every %v: give 0 or more", every)
			}
			cfg, err := directoryConfig(file, ports)
			if err != nil {
				return err
			}
			log := newLogger(cmd.ErrOrStderr(), cfg.Log)
			for _, n := range append(config.StrayDirectoryVariables(os.Environ()), cfg.Notes...) {
				log.Warn("configuration", "note", n.String())
			}
			shared, err := sharedLog(&cfg.Shared)
			if err != nil {
				return usageError{err}
			}
			opener := valkey.WithLog(zmq.Config{
				MaxMessage: cfg.Limits.MessageBytes, MaxInbound: int(cfg.Bounds.Inbound),
				InboundPerAddress: int(cfg.Bounds.InboundPerAddress), HandshakingPerAddress: int(cfg.Bounds.PendingHandshakes),
				Handshake: cfg.Link.HandshakeTimeout, MessageTimeout: cfg.Link.MessageTimeout,
				Poll: cfg.Poll,
			}.Opener(), shared)
			d, err := directory.Open(cfg, opener, log)
			if err != nil {
				return err
			}
			log.Info("serving", "host", cmp.Or(cfg.Host, "every interface"), "ports", d.Ports(),
				"heartbeats", d.Heartbeat(), "silence", cfg.WorkerTimeout)
			printed := watchDirectory(cmd.Context(), cmd.OutOrStdout(), d, every, asJSON)
			closed := d.Close(context.WithoutCancel(cmd.Context()))
			log.Info("stopped", "err", closed)
			return errors.Join(printed, closed)
		},
	}
	cmd.Flags().StringVar(&file, "config", "", "its configuration, YAML (LMCACHE_CONTROLLER_CONFIG_FILE)")
	cmd.Flags().StringVar(&ports, "ports", "", "controller_monitor_ports, in place of what the file says")
	cmd.Flags().DurationVar(&every, "every", 0, "print what it knows that often; 0 never")
	addJSONFlag(cmd, &asJSON)
	return cmd
}

// sharedLog describes the connection to the log that directories share.
func sharedLog(s *config.SharedLog) (c valkey.Config, err error) {
	c = valkey.Config{Stream: s.Stream, Password: s.Password}
	if s.TLS {
		c.TLS, err = valkey.TLSConfig(s.CA, s.Cert, s.Key)
	}
	return c, err
}

// directoryConfig reads the configuration from the file, if one is given, and from the environment.
func directoryConfig(file, ports string) (*config.Directory, error) {
	if file == "" {
		file = os.Getenv("LMCACHE_CONTROLLER_CONFIG_FILE")
	}
	var data []byte
	name := "configuration"
	if file != "" {
		var err error
		if data, err = os.ReadFile(file); err != nil {
			return nil, usageError{err}
		}
		name = file
	}
	var given []config.Argument
	if ports != "" {
		given = append(given, config.Argument{Key: "controller_monitor_ports", Value: ports, Label: "--ports"})
	}
	cfg, err := config.ParseDirectory(name, data, os.LookupEnv, given...)
	if err != nil {
		return nil, usageError{err}
	}
	return cfg, nil
}

// directoryFigures counts what a directory has registered, in the form that --json prints.
type directoryFigures struct {
	Instances int `json:"instances"`
	Workers   int `json:"workers"`
	Locations int `json:"locations"`
	Syncs     int `json:"syncs"`
	Hashes    int `json:"hashes"`
	Chunks    int `json:"chunks"`
	Bytes     int `json:"bytes"`

	Told    int  `json:"told"`     // number of workers that are known only from other directories
	LogDown bool `json:"log_down"` // the log that the directories share cannot be reached
}

// directoryPorts holds one set of a directory's ports. Heartbeat is 0 if the directory has no heartbeat port.
type directoryPorts struct {
	Pull      uint16 `json:"pull"`
	Reply     uint16 `json:"reply"`
	Heartbeat uint16 `json:"heartbeat,omitempty"`
}

// watchDirectory prints the directory's figures until ctx ends.
func watchDirectory(ctx context.Context, w io.Writer, d *directory.Directory, every time.Duration, asJSON bool) error {
	if asJSON {
		serving := struct {
			Ports     []directoryPorts `json:"ports"`
			Heartbeat string           `json:"heartbeat"`
		}{Heartbeat: d.Heartbeat()}
		for _, p := range d.Ports() {
			serving.Ports = append(serving.Ports, directoryPorts{p.Pull, p.Reply, p.Heartbeat})
		}
		if err := json.NewEncoder(w).Encode(serving); err != nil {
			return err
		}
	}
	if every == 0 {
		<-ctx.Done()
		return nil
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return printFigures(w, d, asJSON)
		}
		if err := printFigures(w, d, asJSON); err != nil {
			return err
		}
	}
}

func printFigures(w io.Writer, d *directory.Directory, asJSON bool) error {
	f, ok := d.Figures()
	if !ok {
		return errors.New("the directory has ended")
	}
	told, down := d.Replicated()
	x := directoryFigures{f.Instances, f.Workers, f.Locations, f.Syncs, f.Rows, f.Chunks - f.Retired, f.Bytes, told, down}
	if asJSON {
		return json.NewEncoder(w).Encode(x)
	}
	_, err := fmt.Fprintf(w, "%d instances, %d workers, %d locations, %d syncs; %d chunks of %d hashes, %d bytes\n",
		x.Instances, x.Workers, x.Locations, x.Syncs, x.Chunks, x.Hashes, x.Bytes)
	return err
}
