package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvferry/kvferry/runtime/config"
	"github.com/kvferry/kvferry/runtime/control/valkey"
	"github.com/kvferry/kvferry/runtime/control/zmq"
	"github.com/kvferry/kvferry/runtime/directory"
	"github.com/kvferry/kvferry/runtime/operator"
)

func newDirectoryCommand() *cobra.Command {
	var file, ports string
	var interval time.Duration
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "directory [--config FILE]",
		Short: "Run a directory, which knows which worker has which chunk",
		Long: `directory answers which worker has the chunks of a prefix. Workers report their chunks to
the directory. A directory replaces LMCache's controller: it speaks the same messages on
the same sockets, and its configuration has the same keys, in a file or in variables that
begin with LMCACHE_CONTROLLER_. Without a file, the directory listens on the standard ports,
pull 8300 and reply 8400, on 127.0.0.1. For workers on other hosts, set controller_host to
an address of this host or to 0.0.0.0.

A directory stores nothing on disk, because its content can be lost without harm: after a
restart it asks each worker that sends heartbeats for all of the worker's chunks. Several
directories can share a log on a Valkey or Redis server (directory.log), so that each knows
the workers of all. If the server fails, each continues with its own workers.

--every DURATION prints the directory's counts at that interval, and once at the end. With
--json, each is a line of JSON, after a first line with the ports.

SIGTERM and SIGINT stop the directory. SIGHUP makes it read its configuration and the files
of security again. The log level changes; other changed values are logged, and need a
restart.`,
		Example: `  kvferry directory
  kvferry directory --ports '{"pull": 8300, "reply": 8400, "heartbeat": 8500}' --every 10s
  kvferry directory --config directory.yaml --every 10s --json`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if interval < 0 {
				return usagef("--every %v: give 0 or more", interval)
			}
			cfg, err := readDirectoryConfig(file, ports)
			if err != nil {
				return err
			}
			level := new(slog.LevelVar)
			level.Set(cfg.Log.Level)
			log := newLogger(cmd.ErrOrStderr(), level, cfg.Log.JSON)
			for _, n := range append(config.StrayDirectoryVariables(os.Environ()), cfg.Notes...) {
				log.Warn("configuration", "note", n.String())
			}
			logConfig, err := sharedLogConfig(&cfg.Shared)
			if err != nil {
				return usageError{err}
			}
			opener := valkey.WithLog(zmq.Config{
				MaxMessage: cfg.Limits.MessageBytes, MaxInbound: int(cfg.Bounds.Inbound),
				InboundPerAddress: int(cfg.Bounds.InboundPerAddress), HandshakingPerAddress: int(cfg.Bounds.PendingHandshakes),
				Handshake: cfg.Link.HandshakeTimeout, MessageTimeout: cfg.Link.MessageTimeout,
				Poll: cfg.Poll,
			}.Opener(), logConfig)
			d, err := directory.Open(cfg, opener, log)
			if err != nil {
				return err
			}
			r := reloader[*config.Directory]{started: cfg, current: cfg, log: log,
				read:  func() (*config.Directory, error) { return readDirectoryConfig(file, ports) },
				apply: func(c *config.Directory) { level.Set(c.Log.Level) }}
			defer reloadOnHangup(func() {
				d.ReloadSecurity()
				r.reload()
			})()
			log.Info("serving", "host", cmp.Or(cfg.Host, "every interface"), "ports", d.Ports(),
				"heartbeats", d.Heartbeat(), "silence", cfg.WorkerTimeout)
			face, err := newOperatorFace(&cfg.Operator, &cfg.Security, 0, log)
			var stopOperators func()
			if err == nil {
				stopOperators, _, err = face.serve(d.Guard(), operator.Directory(d))
			}
			if err != nil {
				return errors.Join(err, d.Close(context.WithoutCancel(cmd.Context())))
			}
			defer stopOperators()
			printErr := watchDirectory(cmd.Context(), cmd.OutOrStdout(), d, interval, asJSON)
			closeErr := d.Close(context.WithoutCancel(cmd.Context()))
			log.Info("stopped", "err", closeErr)
			return errors.Join(printErr, closeErr)
		},
	}
	cmd.Flags().StringVar(&file, "config", "", "the directory's configuration, YAML (default: LMCACHE_CONTROLLER_CONFIG_FILE)")
	cmd.Flags().StringVar(&ports, "ports", "", "the value of controller_monitor_ports, which overrides the file")
	cmd.Flags().DurationVar(&interval, "every", 0, "print the directory's counts at this interval; 0: never")
	addJSONFlag(cmd, &asJSON)
	return cmd
}

// sharedLogConfig describes the connection to the log that directories share.
func sharedLogConfig(s *config.SharedLog) (c valkey.Config, err error) {
	c = valkey.Config{Stream: s.Stream, Password: s.Password}
	if s.TLS {
		c.TLS, err = valkey.TLSConfig(s.CA, s.Cert, s.Key)
	}
	return c, err
}

// readDirectoryConfig reads the configuration from the file, if one is given, and from the environment.
func readDirectoryConfig(file, ports string) (*config.Directory, error) {
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
	var arguments []config.Argument
	if ports != "" {
		arguments = append(arguments, config.Argument{Key: "controller_monitor_ports", Value: ports, Label: "--ports"})
	}
	cfg, err := config.ParseDirectory(name, data, os.LookupEnv, arguments...)
	if err != nil {
		return nil, usageError{err}
	}
	return cfg, nil
}

// directoryCounts counts what a directory has registered, in the form that --json prints.
type directoryCounts struct {
	Instances int `json:"instances"`
	Workers   int `json:"workers"`
	Locations int `json:"locations"`
	Syncs     int `json:"syncs"`
	Hashes    int `json:"hashes"`
	Chunks    int `json:"chunks"`
	Bytes     int `json:"bytes"`

	FromReplicas int  `json:"told"`     // number of workers that are known only from other directories
	LogDown      bool `json:"log_down"` // the log that the directories share cannot be reached
}

// directoryPorts holds one set of a directory's ports. Heartbeat is 0 if the directory has no heartbeat port.
type directoryPorts struct {
	Pull      uint16 `json:"pull"`
	Reply     uint16 `json:"reply"`
	Heartbeat uint16 `json:"heartbeat,omitempty"`
}

// watchDirectory prints the directory's figures until ctx ends.
func watchDirectory(ctx context.Context, w io.Writer, d *directory.Directory, interval time.Duration, asJSON bool) error {
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
	if interval == 0 {
		<-ctx.Done()
		return nil
	}
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return printDirectoryCounts(w, d, asJSON)
		}
		if err := printDirectoryCounts(w, d, asJSON); err != nil {
			return err
		}
	}
}

func printDirectoryCounts(w io.Writer, d *directory.Directory, asJSON bool) error {
	f, ok := d.Figures()
	if !ok {
		return errors.New("the directory has stopped")
	}
	fromReplicas, logDown := d.Replicated()
	counts := directoryCounts{f.Instances, f.Workers, f.Locations, f.Syncs, f.Rows, f.Chunks - f.Retired, f.Bytes, fromReplicas, logDown}
	if asJSON {
		return json.NewEncoder(w).Encode(counts)
	}
	_, err := fmt.Fprintf(w, "%d instances, %d workers, %d locations, %d syncs; %d chunks of %d hashes, %d bytes\n",
		counts.Instances, counts.Workers, counts.Locations, counts.Syncs, counts.Chunks, counts.Hashes, counts.Bytes)
	return err
}
