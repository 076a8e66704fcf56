package sim_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const docModule = "../docs/simulator.md"

// docProgram returns the program in docs/simulator.md.
func docProgram(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(docModule)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "<!-- TestModule ")
	_, rest, _ = strings.Cut(rest, "```go\n")
	program, _, found := strings.Cut(rest, "```\n")
	if !found {
		t.Fatal("docs/simulator.md shows no program after its comment for TestModule")
	}
	return program
}

// TestModuleIsTheExample: the program in docs/simulator.md is the program that the tests here run.
func TestModuleIsTheExample(t *testing.T) {
	text, err := os.ReadFile("example_lock_test.go")
	if err != nil {
		t.Fatal(err)
	}
	_, example, _ := strings.Cut(string(text), "\n)\n\n")
	if program := docProgram(t); program != example {
		t.Error("docs/simulator.md shows another lock than sim/example_lock_test.go has: copy all below its imports")
	}
}

// moduleTests are the tests of a user's module: a test that finds the defect of the program, and a test that runs the
// program with real processes.
const moduleTests = `package lock

import (
	"os"
	"os/exec"
	"strconv"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime"
	"github.com/kvferry/kvferry/runtime/control"
	"github.com/kvferry/kvferry/runtime/control/zmq"
	"github.com/kvferry/kvferry/sim/simtest"
)

func TestLock(t *testing.T) { simtest.Check(t, simtest.Case{System: &lock, Seeds: 100}) }

// The server, if it is what this process is for, listens until its input ends.
func TestMain(m *testing.M) {
	if os.Getenv("LOCK") == "" {
		os.Exit(m.Run())
	}
	h, err := runtime.OpenHost(runtime.HostConfig{
		Control: zmq.Config{}.Opener(), Servers: []control.Server{{Channel: port, Addr: effects.Addr{Host: "127.0.0.1"}}},
		NewMachine: func(effects.Time, []control.Server) (effects.Machine, error) { return &server{}, nil },
	})
	if err != nil {
		panic(err)
	}
	os.Stdout.WriteString(strconv.Itoa(int(h.Servers()[0].Addr.Port)) + "\n")
	os.Stdin.Read(make([]byte, 1))
}

func TestReal(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "LOCK=server")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	line := make([]byte, 16)
	n, err := out.Read(line)
	if err != nil {
		t.Fatal(err)
	}
	number, err := strconv.ParseUint(string(line[:n-1]), 10, 16)
	if err != nil {
		t.Fatal(err)
	}
	tokens := make(chan uint32, 2)
	ask := func() effects.Code {
		h, err := runtime.OpenHost(runtime.HostConfig{Control: zmq.Config{}.Opener(),
			NewMachine: func(effects.Time, []control.Server) (effects.Machine, error) {
				return &client{server: effects.Addr{Host: "127.0.0.1", Port: uint16(number)}}, nil
			},
			OnObserve: func(o *effects.Observe) {
				if o.Fact == factHeld {
					tokens <- o.Count
				}
			}})
		if err != nil {
			t.Fatal(err)
		}
		defer h.Close(t.Context())
		for {
			command, err := h.Submit(&acquire{})
			if err != nil {
				t.Fatal(err)
			}
			if out := <-command.Done(); out.Code != effects.Expired { // As on a machine that is very busy.
				return out.Code
			}
		}
	}
	// Each asks until it has it: the first lease may be over before it is heard of.
	for len(tokens) == 0 {
		if code := ask(); code != effects.OK {
			t.Fatal(code)
		}
	}
	first := <-tokens
	for len(tokens) == 0 {
		if code := ask(); code != effects.OK {
			t.Fatal(code)
		}
	}
	if second := <-tokens; second <= first {
		t.Errorf("token %d after %d", second, first)
	}
	in.Close()
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}
`

// A userModule is a module outside this repository whose only direct dependency is kvferry.
type userModule struct{ dir string }

// newUserModule writes the module example.com/name with the given files. The requirements of the module are those of
// kvferry, so that nothing has to be downloaded.
func newUserModule(t *testing.T, name string, files map[string]string) userModule {
	t.Helper()
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	_, requires, _ := strings.Cut(readFile(t, "../go.mod"), "\n\n")
	m := userModule{t.TempDir()}
	m.write(t, "go.mod", "module example.com/"+name+"\n\n"+requires+
		"\nrequire github.com/kvferry/kvferry v0.0.0\n\nreplace github.com/kvferry/kvferry => "+root+"\n")
	m.write(t, "go.sum", readFile(t, "../go.sum"))
	for file, content := range files {
		m.write(t, file, content)
	}
	return m
}

func (m userModule) write(t *testing.T, file, content string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(m.dir, file), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// test runs go test in the module, with one more variable in its environment, and returns what it prints.
func (m userModule) test(t *testing.T, env string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"test", "-mod=mod", "-v"}, args...)...)
	cmd.Dir = m.dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=", env)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func readFile(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestModule: the program of docs/simulator.md works as a module outside this repository, which uses only the exported
// names of kvferry. In that module the simulator finds the defect, saves the plan, draws the page and runs the plan
// again; the program also runs between real processes.
func TestModule(t *testing.T) {
	if testing.Short() {
		t.Skip("builds a module")
	}
	m := newUserModule(t, "lock", map[string]string{
		"lock_test.go": strings.Replace(readFile(t, "example_lock_test.go"), "package sim_test", "package lock", 1),
		"more_test.go": moduleTests,
	})
	out, err := m.test(t, "")
	const again = "KVFERRY_REPLAY=testdata/kvferry/TestLock.yaml"
	for _, says := range []string{"--- FAIL: TestLock", "--- PASS: TestReal", "exclusive broken: node ", again} {
		if err == nil || !strings.Contains(out, says) {
			t.Fatalf("%v: it does not say %q:\n%s", err, says, out)
		}
	}
	page, err := os.ReadFile(filepath.Join(m.dir, "testdata", "kvferry", "TestLock.html"))
	if err != nil || !bytes.Contains(page, []byte("one holds the lock at a time")) {
		t.Errorf("its page: %v, %d bytes", err, len(page))
	}
	if out, err = m.test(t, again, "-run", "^TestLock$"); err == nil || !strings.Contains(out, "exclusive broken: node ") {
		t.Errorf("the kept plan: %v\n%s", err, out)
	}
}

// TestTutorial follows docs/tutorials/simulate.md: the first program passes; with the second program, the property, the
// test fails and prints the line that the tutorial shows.
func TestTutorial(t *testing.T) {
	if testing.Short() {
		t.Skip("builds a module")
	}
	var blocks []string
	for i, part := range strings.Split(readFile(t, "../docs/tutorials/simulate.md"), "```go\n") {
		if i > 0 {
			block, _, _ := strings.Cut(part, "```\n")
			blocks = append(blocks, block)
		}
	}
	if len(blocks) != 2 {
		t.Fatalf("docs/tutorials/simulate.md has %d programs, want the test and the property", len(blocks))
	}
	m := newUserModule(t, "mycluster", map[string]string{"cluster_test.go": blocks[0]})
	if out, err := m.test(t, ""); err != nil {
		t.Fatalf("the first program: %v\n%s", err, out)
	}
	program := strings.Replace(blocks[0], "simtest.Case{\n", "simtest.Case{\n\t\tOracles: []oracle.Oracle{noFailure},\n", 1)
	const imports = "import (\n"
	program = strings.Replace(program, imports, imports+
		"\t\"github.com/kvferry/kvferry/effects\"\n\t\"github.com/kvferry/kvferry/sim/oracle\"\n", 1)
	m.write(t, "cluster_test.go", program+"\n"+blocks[1])
	out, err := m.test(t, "")
	const again = "KVFERRY_REPLAY=testdata/kvferry/TestTwoPrefills.yaml go test -run '^TestTwoPrefills$'"
	for _, says := range []string{"no-failure broken", again} {
		if err == nil || !strings.Contains(out, says) {
			t.Errorf("%v: with the property it does not print %q:\n%s", err, says, out)
		}
	}
	if text := readFile(t, filepath.Join(m.dir, "testdata/kvferry/TestTwoPrefills.yaml")); !strings.Contains(text, "faults:") {
		t.Errorf("no fault is left in the plan, so it does not show what faults do:\n%s", text)
	}
	m.write(t, "cluster_test.go", strings.Replace(program, ".WithFaults(seed)", "", 1)+"\n"+blocks[1])
	if out, err := m.test(t, ""); err != nil {
		t.Errorf("without faults: %v\n%s", err, out)
	}
}
