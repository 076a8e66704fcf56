package runtime

import (
	"bytes"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/device"
	"github.com/kvferry/kvferry/runtime/plane"
)

func TestAttachableEngineMemory(t *testing.T) {
	c := plane.PoolConfig{Pages: 3, PageBytes: 5000, Attachable: true, Sink: newMailbox(1, 1)}
	fenced, err := plane.NewPoolWithin(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	leased, err := newLeasedMemory(t.Context(), c, false)
	if err != nil {
		t.Fatal(err)
	}
	for name, m := range map[string]processPool{"of fenced planes": fenced, "of leased planes": leased} {
		theirs, err := syscall.Mmap(int(m.Attachable().Fd()), 0, 15000, syscall.PROT_READ|syscall.PROT_WRITE,
			syscall.MAP_SHARED)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		copy(theirs[2*5000:], "the third page")
		if got := m.Bytes(effects.Page{Index: 2, Length: 14}); string(got) != "the third page" {
			t.Errorf("%s: %q", name, got)
		}
		if err := m.Attachable().Truncate(0); err == nil {
			t.Errorf("%s could be cut off", name)
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
		if err := m.Close(); err != nil {
			t.Errorf("%s, closed again: %v", name, err)
		}
		// Who has it mapped keeps it.
		if !bytes.HasPrefix(theirs[2*5000:], []byte("the third page")) {
			t.Errorf("%s is gone for who has it mapped", name)
		}
		if err := syscall.Munmap(theirs); err != nil {
			t.Error(err)
		}
	}
	c.Attachable = false
	private, err := newHostMemory(t.Context(), c, false)
	if err != nil {
		t.Fatal(err)
	}
	defer private.Close()
	if private.Attachable() != nil {
		t.Error("memory of this process alone is a file")
	}
}

// aloneDevice is a device whose pool no other process has.
type aloneDevice struct{ device.Device }

func (aloneDevice) AttachableFile() *os.File     { return nil }
func (aloneDevice) ExportedPool() *device.Export { return nil }

func TestMemoryOfADeviceIsNotMapped(t *testing.T) {
	w := &rankDriver{baseDriver: baseDriver{tickets: newTicketTable(1)}, memory: deviceMemory{aloneDevice{}}}
	n := &Node{tickets: w.tickets, driver: w}
	_, err := n.Mapping()
	wantCode(t, err, effects.Unsupported)
	if !strings.Contains(err.Error(), "WithAttachable") {
		t.Errorf("no remedy: %v", err)
	}
	_, _, err = n.newPages([]effects.Page{{Index: 1}}).MappedPage(0)
	wantCode(t, err, effects.Unsupported)
}
