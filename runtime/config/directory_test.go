package config

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
)

// TestDirectories runs testdata/directory.txt: files of directories, with variables and arguments, and what is read of
// them or wrong with them.
func TestDirectories(t *testing.T) {
	datadriven.RunTest(t, "testdata/directory.txt", func(t *testing.T, td *datadriven.TestData) string {
		env := map[string]string{}
		var given []Argument
		for _, a := range td.CmdArgs {
			switch a.Key {
			case "ports":
				given = append(given, Argument{Key: monitorPortsKey, Value: strings.Join(a.Vals, ", "), Label: "--ports"})
			default:
				env[a.Key] = strings.Join(a.Vals, ", ")
			}
		}
		c, err := ParseDirectory("directory.yaml", []byte(td.Input), func(name string) (string, bool) {
			v, set := env[name]
			return v, set
		}, given...)
		var e *Error
		if errors.As(err, &e) {
			return lines(e.Problems)
		}
		if err != nil {
			t.Fatal(err)
		}
		return readOf(c) + lines(c.Notes)
	})
}

// The standard of a directory is LMCache's of its controller, but that it listens on the loopback and forgets workers.
func TestStandardOfADirectory(t *testing.T) {
	for _, k := range controllerKeys {
		if k.def == "" {
			t.Errorf("%s has no standard", k.name)
		}
	}
	c, err := ParseDirectory("nothing", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if c.Host != "127.0.0.1" || len(c.Monitors) != 1 || c.Monitors[0] != (MonitorPorts{Pull: 8300, Reply: 8400}) ||
		c.WorkerTimeout != 300*time.Second || !c.OnlyHeartbeats {
		t.Errorf("an empty file is %+v", c)
	}
	if _, err := ParseDirectory("f", nil, os.LookupEnv); err != nil {
		t.Error(err)
	}
}

// readOf is what the file of a directory says where it may differ.
func readOf(c *Directory) string {
	shared := ""
	if c.Shared.Addr.Host != "" {
		shared = fmt.Sprintf("log %+v\n", c.Shared)
	}
	return fmt.Sprintf("host %q, heartbeats at %q\nports %+v\nsilence %v, only heartbeats %v\ntables %+v\n"+
		"limits %d bytes, %d hashes, %d operations\n",
		c.Host, c.Advertise, c.Monitors, c.WorkerTimeout, c.OnlyHeartbeats, c.Tables, c.Limits.MessageBytes, c.Limits.HashCount,
		c.Limits.OperationCount) +
		shared
}
