//go:build cgo && linux

package acl

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// importerVariable names the variable that makes this test's program the process that imports.
const importerVariable = "KVFERRY_TEST_IMPORTS"

// conversation exchanges lines with another process.
type conversation struct {
	t    *testing.T
	to   io.Writer
	from *bufio.Scanner
}

func (c conversation) sendLine(format string, args ...any) {
	c.t.Helper()
	if _, err := fmt.Fprintf(c.to, format+"\n", args...); err != nil {
		c.t.Fatal(err)
	}
}

func (c conversation) readLine(format string, args ...any) {
	c.t.Helper()
	if !c.from.Scan() {
		c.t.Fatalf("the other process has ended: %v", c.from.Err())
	}
	if _, err := fmt.Sscanf(c.from.Text(), format, args...); err != nil {
		c.t.Fatalf("%q: %v", c.from.Text(), err)
	}
}

const sharedBytes = 4 << 20

// TestImportingProcess is the importing process of TestMemoryOfAnotherProcess.
func TestImportingProcess(t *testing.T) {
	if os.Getenv(importerVariable) == "" {
		t.Skip("no process of TestMemoryOfAnotherProcess")
	}
	with := conversation{t, os.Stdout, bufio.NewScanner(os.Stdin)}
	r := newRig(t)
	c := r.newContext(ContextOptions{})
	var key string
	mustDo(t, c, func(at *Thread) error {
		me, err := at.ProcessNumber()
		if err != nil {
			return err
		}
		with.sendLine("process %d", me)
		with.readLine("key %s", &key)
		if _, err := at.Import(strings.Repeat("0", len(key)), sharedBytes); !errors.Is(err, Bug) {
			t.Errorf("a key that nobody has: %v", err)
		}
		m, err := at.Import(key, sharedBytes)
		if err != nil {
			return err
		}
		got := make([]byte, 1<<20)
		if err := at.Download(got, m.Range(1<<20, 1<<20)); err != nil {
			return err
		}
		if !bytes.Equal(got, pattern(1<<20, 1)) {
			t.Error("the memory does not hold what its owner stored")
		}
		if err := at.Upload(m.Range(2<<20, 1<<20), pattern(1<<20, 2)); err != nil {
			return err
		}
		return m.Close(at)
	})
	with.sendLine("done %d", 1)
}

// An admitted process can read and write the exported memory; a process that was not admitted cannot import it.
func TestMemoryOfAnotherProcess(t *testing.T) {
	r := newRig(t)
	c := r.newContext(ContextOptions{})
	m := allocDevice(t, c, sharedBytes)
	mustDo(t, c, func(t *Thread) error { return t.Upload(m.Range(1<<20, 1<<20), pattern(1<<20, 1)) })
	e := mustMake(t, c, func(t *Thread) (*Export, error) { return t.Export(m) })
	mustDo(t, c, func(at *Thread) error {
		if _, err := at.Export(m); !errors.Is(err, Bug) {
			t.Errorf("exported twice: %v", err)
		}
		if _, err := at.Import(e.Key(), sharedBytes); !errors.Is(err, Bug) {
			t.Errorf("imported by its own process: %v", err)
		}
		return nil
	})
	for _, admitted := range []bool{false, true} {
		other := exec.Command(os.Args[0], "-test.run=^TestImportingProcess$")
		other.Env = append(os.Environ(), importerVariable+"=1", "KVFERRY_SOFTNPU="+softnpuPath)
		in, err := other.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := other.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := other.Start(); err != nil {
			t.Fatal(err)
		}
		with := conversation{t, in, bufio.NewScanner(out)}
		var process, done int32
		with.readLine("process %d", &process)
		if admitted {
			mustDo(t, c, func(t *Thread) error { return e.AdmitProcess(t, process) })
		}
		with.sendLine("key %s", e.Key())
		if admitted {
			with.readLine("done %d", &done)
		}
		_, _ = io.Copy(io.Discard, out)
		if err := other.Wait(); (err == nil) != admitted {
			t.Errorf("admitted: %v, and the other process ended with %v", admitted, err)
		}
	}
	got := make([]byte, 1<<20)
	mustDo(t, c, func(t *Thread) error { return t.Download(got, m.Range(2<<20, 1<<20)) })
	wantBytes(t, got, pattern(1<<20, 2), "the memory")
	mustDo(t, c, e.Close)
}

// Only open memory that AllocDevice made is exported, and by its own context.
func TestExportRefusesOtherMemory(t *testing.T) {
	r := newRig(t)
	c, other := r.newContext(ContextOptions{}), r.newContext(ContextOptions{})
	m := allocDevice(t, c, 4096)
	host := mustMake(t, c, func(t *Thread) (*Memory, error) { return t.AllocHost(4096) })
	part := mustMake(t, c, func(t *Thread) (*Memory, error) { return t.WrapMemory(OnDevice, m.Address(), 1024) })
	closed := mustMake(t, c, func(t *Thread) (*Memory, error) { return t.AllocDevice(4096, HugeFirst) })
	mustDo(t, c, closed.Close)
	for _, x := range []struct {
		by     *Context
		memory *Memory
		want   error
	}{{other, m, ErrWrongContext}, {c, host, ErrInvalid}, {c, part, ErrInvalid}, {c, closed, ErrClosed}} {
		if err := x.by.Do(func(t *Thread) error { _, err := t.Export(x.memory); return err }); !errors.Is(err, x.want) {
			t.Errorf("exported: %v; want %v", err, x.want)
		}
	}
	mustDo(t, c, part.Close)
	mustDo(t, c, host.Close)
}

func TestExportOnAnOldLibrary(t *testing.T) {
	for _, symbol := range []string{"aclrtIpcMemGetExportKey", "aclrtIpcMemSetImportPid", "aclrtIpcMemClose"} {
		r := newRig(t, symbol)
		c := r.newContext(ContextOptions{})
		m := allocDevice(t, c, 4096)
		err := c.Do(func(t *Thread) error { _, err := t.Export(m); return err })
		if missing := (*MissingError)(nil); !errors.As(err, &missing) || missing.Symbol != symbol {
			t.Errorf("without %s: %v", symbol, err)
		}
	}
}
