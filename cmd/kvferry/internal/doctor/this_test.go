package doctor

import (
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
)

// On the machine that runs the test, every call of the checks returns a result.
func TestThis(t *testing.T) {
	m := LocalMachine()
	if err := m.Memfd(); err != nil {
		t.Errorf("memory files: %v", err)
	}
	if boottime, monotonic, err := m.Clocks(); err != nil || boottime <= 0 || monotonic <= 0 {
		t.Errorf("clocks: %v %v, %v", boottime, monotonic, err)
	}
	if _, err := m.Interfaces(); err != nil {
		t.Errorf("interfaces: %v", err)
	}
	if perSecond, err := m.HostCopy(1 << 20); err != nil || perSecond < 0 {
		t.Errorf("host copy: %v, %v", perSecond, err)
	}
	if err := m.Writable(t.TempDir()); err != nil {
		t.Errorf("a folder of our own: %v", err)
	}
	if err := m.Writable("/no/such/folder"); err == nil {
		t.Error("a folder that is not there can be written")
	}
	if m.readText("/proc/sys/kernel/osrelease") == "" || !m.exists("/proc") || m.exists("/no/such/file") {
		t.Error("the root file system is not this machine's")
	}
}

func TestPortThatIsTaken(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := net.SplitHostPort(l.Addr().String())
	port, _ := strconv.Atoi(text)
	if err := bindPort("127.0.0.1", uint16(port)); err == nil {
		t.Error("a port that somebody listens at could be bound")
	}
	l.Close()
	if err := bindPort("127.0.0.1", 0); err != nil {
		t.Errorf("any port: %v", err)
	}
}

func TestLists(t *testing.T) {
	for text, want := range map[string]string{
		"0-3,8": "0-3,8", "0,1,2": "0-2", "5": "5", "": "", "x,1-y,3": "3", "7-6": "",
	} {
		if got := formatList(parseList(text)); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

func TestSizes(t *testing.T) {
	for bytes, want := range map[uint64]string{
		0: "0 bytes", 1023: "1023 bytes", 1024: "1 KiB", 1536: "1.5 KiB", 64 << 20: "64 MiB",
		1<<30 - 1: "1 GiB", 9<<20 + 1023<<10: "10 MiB", 24684100 << 10: "24 GiB", 1<<64 - 1: "16 EiB",
	} {
		if got := formatSize(bytes); got != want {
			t.Errorf("%d: got %q, want %q", bytes, got, want)
		}
	}
}

// The text has the counts, and the JSON has the verdicts as words.
func TestReport(t *testing.T) {
	var s Section
	s.Name = "all"
	s.addOK("a", "1")
	s.addNote("b", "2", "do b")
	s.addWarning("c", "3", "do c")
	s.addProblem("d", "4", "do d")
	s.addProblem("e", "5", "do e")
	r := newReport(s, Section{Name: "empty"})
	var b strings.Builder
	if err := r.Print(&b); err != nil {
		t.Fatal(err)
	}
	if !strings.HasSuffix(b.String(), "\n2 problems, 1 warning, 1 note\n") || len(r.Sections) != 1 {
		t.Errorf("got %s", &b)
	}
	if err := r.Print(closed{}); err == nil {
		t.Error("a report that could not be written was")
	}
}

type closed struct{}

func (closed) Write([]byte) (int, error) { return 0, os.ErrClosed }
