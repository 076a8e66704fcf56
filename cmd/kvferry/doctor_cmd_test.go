//go:build cgo && linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/runtime/acl"
	"github.com/kvferry/kvferry/runtime/hccl/comm"
	"github.com/kvferry/kvferry/runtime/softnpu"
)

// A doctorReport is the report that --json prints.
type doctorReport struct {
	Sections []struct {
		Name string
		Rows []struct{ Name, Value, Verdict, Remedy string }
	}
	Notes, Warnings, Problems int
}

// doctorJSON runs doctor with --json. The exit code must match the number of problems, which depends on this machine.
func doctorJSON(t *testing.T, args ...string) doctorReport {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code := run(context.Background(), append([]string{"doctor", "--json", "--copy-bytes", "64KiB"}, args...), nil, &stdout,
		&stderr)
	var r doctorReport
	if err := json.Unmarshal(stdout.Bytes(), &r); err != nil {
		t.Fatalf("%v\n%s%s", err, &stdout, &stderr)
	}
	want := exitOK
	if r.Problems > 0 {
		want = exitFinding
	}
	if code != want || stderr.Len() != 0 {
		t.Errorf("exit code %d with %d problems: %s", code, r.Problems, &stderr)
	}
	return r
}

// rowVerdict returns the verdict of a row, or "" if there is no such row.
func (r doctorReport) rowVerdict(section, row string) string {
	for _, s := range r.Sections {
		for _, w := range s.Rows {
			if s.Name == section && w.Name == row {
				return w.Verdict
			}
		}
	}
	return ""
}

// withoutCANN makes the search for CANN's libraries find nothing.
func withoutCANN(t *testing.T) {
	t.Helper()
	t.Setenv(acl.LibraryVariable, filepath.Join(t.TempDir(), "libascendcl.so"))
	t.Setenv(comm.LibraryVariable, filepath.Join(t.TempDir(), "libhcomm.so"))
}

func TestDoctorWithoutLibrary(t *testing.T) {
	withoutCANN(t)
	r := doctorJSON(t)
	for _, section := range []string{"program", "host", "memory", "network"} {
		if len(r.Sections) == 0 || r.Sections[0].Name != section {
			t.Fatalf("no section %s in %+v", section, r.Sections)
		}
		r.Sections = r.Sections[1:]
	}
	// On a machine with NPUs, a missing library is a warning.
	if v := r.rowVerdict("npus", "library"); v != "note" && v != "warning" {
		t.Errorf("no library is a %q", v)
	}
	if v := doctorJSON(t, "--library", "/no/such/library.so").rowVerdict("npus", "library"); v != "problem" {
		t.Errorf("no library, though it was asked for, is a %q", v)
	}
}

func TestDoctorOverTheSoftwareNPU(t *testing.T) {
	library, err := softnpu.Variant{}.BuildLibrary()
	if errors.Is(err, softnpu.ErrNoTools) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	t.Setenv(comm.LibraryVariable, library)
	r := doctorJSON(t, "--library", library)
	for _, row := range []string{"library", "cann", "chip", "devices"} {
		if v := r.rowVerdict("npus", row); v != "ok" {
			t.Errorf("%s is %q", row, v)
		}
	}
	for _, section := range []string{"npu 0", "npu 1"} {
		for _, row := range []string{"memory", "physical id", "host to device", "device to host", "device to device"} {
			if v := r.rowVerdict(section, row); v != "ok" {
				t.Errorf("%s of %s is %q", row, section, v)
			}
		}
	}
	for _, row := range []struct{ section, name string }{{"hccl", "library"}, {"hccl", "sequence"},
		{"links", "every pair"}} {
		if v := r.rowVerdict(row.section, row.name); v != "ok" {
			t.Errorf("%s of %s is %q", row.name, row.section, v)
		}
	}

	var text, stderr bytes.Buffer
	run(context.Background(), []string{"doctor", "--library", library, "--copy-bytes", "64KiB"}, nil, &text, &stderr)
	if !strings.Contains(text.String(), "\nnpu 1\n  ok ") || !strings.Contains(text.String(),
		" GB/s, measured with 64 KiB\n") {
		t.Errorf("got %s%s", &text, &stderr)
	}
}

func TestDoctorWithConfiguration(t *testing.T) {
	withoutCANN(t)
	if v := doctorJSON(t, "--config", "testdata/config/sender.yaml").rowVerdict("configuration", "file"); v != "ok" {
		t.Errorf("a good file is %q", v)
	}
	if v := doctorJSON(t, "--config", "testdata/config/broken.yaml").rowVerdict("configuration", "pd_role"); v != "problem" {
		t.Errorf("a missing role is %q", v)
	}
	file := filepath.Join(t.TempDir(), "npu.yaml")
	good, err := os.ReadFile("testdata/config/sender.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, bytes.Replace(good, []byte("pd_buffer_device: cpu"), []byte("pd_buffer_device: npu:0"),
		1), 0o600); err != nil {
		t.Fatal(err)
	}
	if v := doctorJSON(t, "--config", file).rowVerdict("npus", "library"); v != "problem" {
		t.Errorf("no library, though the pool is to lie on an NPU, is a %q", v)
	}
}
