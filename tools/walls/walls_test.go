package walls

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/kvferry/kvferry"

// pureStd lists the packages of the standard library that only compute and have no access to the outside.
var pureStd = []string{
	"bytes", "cmp", "crypto/hmac", "crypto/sha256", "crypto/subtle", "encoding/binary", "encoding/hex", "errors", "fmt",
	"hash/crc32", "iter", "math", "math/bits",
	"slices", "strconv", "strings", "unicode/utf8",
}

// A room is a package, or with /... a folder of packages, and the packages that it may import directly. The first room
// that matches a package applies. In every list, a trailing /... stands for all packages below. Names without a host
// are packages of this module, or in std packages of the standard library.
type room struct {
	name    string
	std     []string // nil: every package
	own     []string // packages of this module
	foreign []string // packages of other modules; nil: every package in go.mod
	not     []string // packages of this module that are refused although own allows them
}

var none = []string{}

// identifiers lists the packages that create and parse UUIDs.
var identifiers = []string{"github.com/google/uuid"}

var rooms = []room{
	{name: "effects", std: pureStd, own: none, foreign: none},
	// contract defines the duties of every driver, for the drivers' tests. It must not import a driver.
	{name: "contract", std: pureStd, own: []string{"effects"}, foreign: none},
	// The test vectors embed a file, so state machines must not import them.
	{name: "protocol/vectors", std: []string{"embed", "encoding/hex", "strings"}, own: none, foreign: none},
	{name: "protocol/...", not: []string{"protocol/vectors"}, std: pureStd, own: []string{"protocol/..."}, foreign: none},

	// identity derives names and tokens from a key. Machines create them, and planes check them.
	{name: "identity", std: pureStd, own: []string{"effects"}, foreign: none},

	// The packages of a rank, from the lowest to the highest: the kernel, the pages, the peers, and the flows over all of
	// these.
	{name: "fsm/rank/kernel/...", std: pureStd, foreign: none,
		own: []string{"effects", "fsm/prng", "fsm/table", "fsm/rank/env", "fsm/rank/kernel"}},
	{name: "fsm/rank/env", std: pureStd, own: []string{"effects", "fsm/rank/kernel", "fsm/rank/memory"}, foreign: none},
	{name: "fsm/rank/memory/geometry", std: pureStd, own: []string{"protocol"}, foreign: none},
	{name: "fsm/rank/memory/...", std: pureStd, own: memory(), foreign: none},
	{name: "fsm/rank/peers/...", std: pureStd, own: peers(), foreign: none},
	// The common parts of flows must not import a flow.
	{name: "fsm/rank/flows/flow", std: pureStd, own: shared(), foreign: none},
	{name: "fsm/rank/flows/engine", std: pureStd, own: shared(), foreign: none},
	{name: "fsm/rank/flows/deferred", std: pureStd, own: shared(), foreign: none},
	{name: "fsm/rank/flows/p2p", std: pureStd, own: append(shared(), "fsm/directory/registrar"), foreign: none},
	// A flow must not import another flow, except put: pushes, offers and layers are puts.
	{name: "fsm/rank/flows/...", std: pureStd, own: append(shared(), "fsm/rank/flows/put"), foreign: none},
	// The numbers that a node exports, of the rank and of what its planes do.
	{name: "fsm/rank/metrics", std: pureStd, own: []string{"effects", "fsm/rank"}, foreign: none},
	{name: "fsm/rank", std: pureStd, own: []string{"effects", "identity", "protocol", "fsm/..."}, foreign: none},

	// The state machine of leased planes between devices does not depend on ranks.
	{name: "fsm/communicator", std: pureStd, own: []string{"effects", "fsm/rank/kernel", "fsm/table"}, foreign: none},
	{name: "fsm/session", std: pureStd, own: []string{"effects", "protocol"}, foreign: none},
	// The gateway translates between kvferry's messages and the messages of plain vLLM engines.
	{name: "fsm/gateway", std: pureStd, foreign: none, own: []string{"effects", "protocol", "fsm/rank/memory/geometry",
		"fsm/rank/peers/link", "fsm/rank/flows/register"}},
	// The content of a directory does not depend on messages.
	{name: "fsm/directory/index", std: pureStd, own: []string{"fsm/prng", "fsm/table"}, foreign: none},
	{name: "fsm/directory", std: pureStd, own: []string{"effects", "fsm/directory/index", "fsm/prng", "fsm/table"},
		foreign: none},
	// These packages add the messages of directories.
	{name: "fsm/directory/replica", std: pureStd, own: []string{"effects", "fsm/table", "protocol/sharedlog"},
		foreign: none},
	{name: "fsm/directory/serve", std: pureStd, foreign: none,
		own: []string{"effects", "fsm/directory", "fsm/directory/replica", "fsm/table", "protocol", "protocol/sharedlog"}},
	// The registrar is the worker's part: it reports the chunks of the store to directories.
	{name: "fsm/directory/registrar", std: pureStd, own: memory(), foreign: none},
	// All other packages of the state machines may import only effects and tables.
	{name: "fsm/...", std: pureStd, own: []string{"effects", "fsm/table"}, foreign: none},

	// snapshot copies, hashes and prints any state that is a plain tree of values.
	{name: "snapshot", own: none, foreign: none},
	// The lowest packages of the simulator.
	{name: "sim/draw", own: []string{"effects"}, foreign: none},
	// replace writes files that users name: a plan or a page may replace only a file that the same command wrote.
	{name: "sim/internal/replace", own: none, foreign: none},
	{name: "sim/plan", own: []string{"effects", "sim/draw", "sim/internal/replace"},
		foreign: []string{"go.yaml.in/yaml/v4"}},
	{name: "sim/condense", own: []string{"effects", "sim/draw", "sim/plan", "sim/world"}, foreign: none},
	{name: "sim/expand", own: []string{"effects", "protocol", "sim/draw", "sim/plan", "sim/world"}, foreign: none},
	{name: "sim/coverage", own: none, foreign: none},
	// The world runs any machine, so it must not depend on ranks or messages. It contains the state machine of leased
	// planes.
	{name: "sim/world", foreign: none, own: []string{"effects", "contract", "identity", "fsm/communicator", "sim/coverage",
		"sim/draw", "sim/oracle", "sim/plan", "sim/trace"}},
	// explore tries every order of events for any system. Of machines, it knows only the containers of their state.
	{name: "sim/explore", foreign: none, own: []string{"effects", "fsm/rank/kernel", "fsm/table", "sim/coverage", "sim/draw",
		"sim/oracle", "sim/plan", "sim/world", "snapshot"}},
	// The system of ranks and their engines. Its oracles observe it, and it must not import them.
	{name: "sim/systems/pd", foreign: none, own: []string{"effects", "identity", "protocol", "protocol/foreign", "fsm/...",
		"sim/coverage", "sim/draw", "sim/expand", "sim/explore", "sim/oracle", "sim/plan", "sim/story", "sim/trace",
		"sim/world", "snapshot"}},
	// The scopes are plans.
	{name: "sim/systems/pd/scopes", foreign: none, own: []string{"sim/draw", "sim/explore", "sim/plan"}},
	// The oracles of ranks see only the reports of the world and of the engines.
	{name: "sim/systems/pd/ledger", foreign: none, own: []string{"contract", "effects", "identity", "protocol", "fsm/...",
		"sim/coverage", "sim/draw", "sim/oracle", "sim/plan", "sim/systems/pd", "sim/world"}},
	// The common part of systems without ranks, and these systems.
	{name: "sim/systems/custom", foreign: none, own: []string{"effects", "sim/oracle", "sim/plan"}},
	{name: "sim/systems/directory", foreign: none,
		own: append(memory(), "protocol/sharedlog", "fsm/directory/...", "sim/draw", "sim/oracle", "sim/plan",
			"sim/systems/custom")},
	// The list of the systems for further flows, and these systems. Each knows the system of ranks, but no other system.
	{name: "sim/systems", foreign: none, own: []string{"sim/condense", "sim/expand", "sim/explore", "sim/plan",
		"sim/systems/..."}},
	// The system of engines in processes of their own uses the systems of several flows.
	{name: "sim/systems/agent", foreign: none, own: []string{"effects", "protocol", "fsm/...", "sim/draw", "sim/expand",
		"sim/explore", "sim/oracle", "sim/plan", "sim/systems/layerwise", "sim/systems/p2p", "sim/systems/pd", "sim/world"}},
	{name: "sim/systems/...", foreign: none, own: []string{"effects", "protocol", "fsm/...", "sim/draw", "sim/expand",
		"sim/explore", "sim/oracle", "sim/plan", "sim/systems/custom", "sim/systems/pd", "sim/world"}},
	// exposed computes the exposed time of a transfer for a model and a link, with ranks and counted time.
	{name: "sim/exposed", own: []string{"effects", "protocol", "fsm/..."}, foreign: none},
	{name: "sim/...",
		own: []string{
			"effects", "identity", "contract", "protocol", "protocol/foreign", "fsm/...", "snapshot", "sim/...",
		},
		foreign: []string{"go.yaml.in/yaml/v4", "pgregory.net/rapid"}},

	{name: "runtime/device", own: []string{"effects", "runtime/plane"}, foreign: none},
	{name: "runtime/plane", own: []string{"identity", "effects", "runtime/plane/backing", "runtime/secure"}, foreign: none},
	// backing allocates the real memory of pools of every kind.
	{name: "runtime/plane/backing", own: none, foreign: none},
	// framing has the frames and blobs of the connections of all planes.
	{name: "runtime/plane/framing", own: []string{"identity"}, foreign: none},
	{name: "runtime/plane/internal/...", own: []string{"effects", "identity", "runtime/internal/door",
		"runtime/internal/nowait", "runtime/internal/loglimit", "runtime/internal/stepper", "runtime/plane",
		"runtime/plane/framing", "runtime/plane/internal/...", "runtime/secure"}},
	{name: "runtime/plane/planetest",
		own: []string{"effects", "identity", "contract", "runtime/internal/logtest", "runtime/internal/proctest", "runtime/plane",
			"runtime/plane/liar", "runtime/secure", "runtime/secure/authority"}},
	// The plane over libnixl serves memory by address, and knows neither the node nor the owner of the memory.
	{name: "runtime/plane/nixl", foreign: identifiers, own: []string{"effects", "identity", "fsm/communicator",
		"runtime/internal/door", "runtime/internal/loglimit", "runtime/libnixl", "runtime/libnixl/nixlproc", "runtime/plane",
		"runtime/plane/backing", "runtime/plane/epochs", "runtime/plane/framing", "runtime/secure"}},
	// epochs is the common part of the leased planes. It serves memory by address and knows no library.
	{name: "runtime/plane/epochs", foreign: identifiers, own: []string{"effects", "identity", "fsm/communicator",
		"runtime/internal/door", "runtime/internal/loglimit", "runtime/plane", "runtime/plane/framing",
		"runtime/plane/internal/guarded", "runtime/secure"}},
	{name: "runtime/plane/...",
		own: []string{"effects", "identity", "runtime/internal/peercred", "runtime/plane", "runtime/plane/framing",
			"runtime/plane/internal/...", "runtime/secure"}},
	{name: "runtime/control", own: []string{"effects", "runtime/secure"}, foreign: none},
	{name: "runtime/control/controltest",
		own: []string{"effects", "contract", "runtime/control", "runtime/control/reserve"}},
	// zmtp is ZeroMQ's wire protocol without sockets. Its tests use libzmq, but tests are not checked here.
	{name: "runtime/control/zmq/zmtp", own: none, foreign: none},
	{name: "runtime/control/zmq", foreign: none,
		own: []string{"effects", "runtime/control", "runtime/control/internal/...", "runtime/control/zmq/zmtp",
			"runtime/internal/...", "runtime/secure"}},
	// The same protocol with libzmq. It is the only package of this module, except tests, that calls libzmq.
	{name: "runtime/control/libzmq", foreign: []string{"github.com/pebbe/zmq4"},
		own: []string{"effects", "runtime/control", "runtime/control/internal/...", "runtime/internal/..."}},
	// Mutual TLS: identities and roles of peers, for connections of any protocol.
	{name: "runtime/secure", own: []string{"effects", "runtime/internal/loglimit"}, foreign: []string{"go.yaml.in/yaml/v4"}},
	// Certificates for tests, the demo and `kvferry certs`.
	{name: "runtime/secure/authority", own: []string{"effects"}, foreign: none},
	// The common part of both transports.
	{name: "runtime/control/internal/...", own: []string{"effects", "runtime/control", "runtime/internal/..."},
		foreign: none},
	// Plain sockets of libzmq, which tests use as peers.
	{name: "runtime/control/controltest/plaintest",
		own:     []string{"effects", "runtime/control", "runtime/control/controltest"},
		foreign: []string{"github.com/pebbe/zmq4"}},
	// The connection to the log that directories share.
	{name: "runtime/control/valkey",
		own:     []string{"effects", "protocol/sharedlog", "runtime/control", "runtime/internal/loglimit"},
		foreign: []string{"github.com/gomodule/redigo/redis"}},
	{name: "runtime/control/valkey/server", own: none, foreign: none},
	{name: "runtime/control/valkey/valkeytest",
		own: []string{"runtime/control/reserve", "runtime/control/valkey/server"}, foreign: none},
	{name: "runtime/control/...", own: []string{"effects", "runtime/control"}},
	{name: "runtime/config", own: []string{"effects", "protocol", "runtime/secure", "fsm/..."},
		foreign: []string{"go.yaml.in/yaml/v4"}},
	// softnpu builds a C library; only tests use it.
	{name: "runtime/softnpu", own: none, foreign: none},
	// sharedlib loads C libraries, and knows none of them.
	{name: "runtime/sharedlib", own: none, foreign: none},
	// The binding of AscendCL, and the controls of the software NPU for tests.
	{name: "runtime/acl/...", own: []string{"runtime/sharedlib"}, foreign: none},
	// The binding of libnixl, and helpers of tests that use it.
	{name: "runtime/libnixl", own: []string{"runtime/sharedlib"}, foreign: none},
	// The process that libnixl runs in, and the calls to it.
	{name: "runtime/libnixl/nixlproc", own: []string{"runtime/libnixl"}, foreign: []string{"golang.org/x/sys/unix"}},
	{name: "runtime/libnixl/libnixltest", own: []string{"runtime/libnixl", "runtime/plane/backing"}, foreign: none},
	// The session with engines in other processes, over a Unix socket.
	{name: "runtime/attach", own: []string{"effects", "protocol", "fsm/session", "runtime", "runtime/internal/door",
		"runtime/internal/netpoll", "runtime/internal/nowait", "runtime/internal/peercred"}, foreign: []string{"golang.org/x/sys/unix"}},
	// The proxy for engines uses only HTTP and metrics, and no node.
	{name: "runtime/proxy", own: []string{"effects", "runtime/buildinfo", "runtime/internal/door", "runtime/internal/loglimit",
		"runtime/secure", "runtime/span"},
		foreign: with(identifiers, "github.com/prometheus/client_golang/prometheus/...", "go.yaml.in/yaml/v4")},
	// The interface for operators sees all that a process may run, and only commands import it.
	{name: "runtime/operator", own: []string{"effects", "fsm/rank", "fsm/rank/metrics", "runtime", "runtime/attach", "runtime/directory",
		"runtime/recording", "runtime/secure"},
		foreign: with(identifiers, "github.com/prometheus/client_golang/prometheus/...", "golang.org/x/net/netutil")},
	// The gateway reaches plain engines over libnixl and side channels, which it gets as arguments.
	{name: "runtime/gateway", own: []string{"effects", "protocol", "fsm/gateway", "fsm/rank/memory/geometry", "fsm/rank/flows/register",
		"runtime/config", "runtime/control", "runtime/internal/door", "runtime/internal/loglimit", "runtime/libnixl",
		"runtime/libnixl/nixlproc", "runtime/plane", "runtime/plane/epochs"},
		foreign: []string{"golang.org/x/sys/unix"}},
	// The binding of HCCL, whose calls need a current context of AscendCL on their thread.
	{name: "runtime/hccl/comm/...", own: []string{"runtime/acl", "runtime/sharedlib"}, foreign: none},
	// The plane over HCCL serves memory by address, and knows neither the node nor the device of the memory.
	{name: "runtime/hccl", foreign: identifiers, own: []string{"effects", "identity", "fsm/communicator", "runtime/acl",
		"runtime/hccl/comm", "runtime/internal/door", "runtime/internal/loglimit", "runtime/plane", "runtime/plane/epochs",
		"runtime/plane/framing", "runtime/secure"}},
	// Helpers of the tests of that plane, also for tests in other packages.
	{name: "runtime/hccl/hccltest", own: []string{"runtime/acl", "runtime/acl/acltest", "runtime/hccl",
		"runtime/hccl/comm", "runtime/plane", "runtime/plane/planetest", "runtime/softnpu"}, foreign: none},
	// An NPU's memory, which a node gets as its device. The engines of demos and tests use it.
	{name: "runtime/npu", foreign: none,
		own: []string{"effects", "runtime/acl", "runtime/device", "runtime/plane", "runtime/plane/backing"}},
	{name: "runtime/npu/...", own: []string{"runtime/acl", "runtime/device", "runtime/npu"}, foreign: none},
	// Helpers of several drivers: admission, names, logs. They must not import a driver. The package postmortem knows the
	// types of the state that must not be written into reports.
	{name: "runtime/internal/postmortem",
		own: []string{"effects", "identity", "snapshot", "fsm/prng", "fsm/table", "runtime/buildinfo"}},
	{name: "runtime/internal/...", own: []string{"effects", "runtime/internal/..."}},
	// The recorder knows the machine of a node with all its commands, in order to make and to step it again.
	{name: "runtime/recording", foreign: none, own: []string{"effects", "protocol", "fsm/rank", "fsm/table", "fsm/rank/flows/...", "snapshot",
		"runtime/buildinfo", "runtime/internal/postmortem"}},
	// The version and the commit of a program.
	{name: "runtime/buildinfo", own: none, foreign: none},
	{name: "runtime/span", own: []string{"effects"}, foreign: none},
	// OpenTelemetry brings many packages: only commands import what exports to it.
	{name: "runtime/tracing", own: []string{"effects", "runtime/span"}, foreign: []string{"go.opentelemetry.io/...", "golang.org/x/sys/unix"}},
	// The event loop gets planes and sockets as interfaces, so it must not import them.
	{name: "runtime/...", own: []string{"effects", "identity", "protocol", "fsm/...", "runtime/..."},
		not: []string{"runtime/plane/shm/...", "runtime/plane/tcp/...", "runtime/control/zmq/...",
			"runtime/control/libzmq", "runtime/control/valkey/...", "runtime/tracing",
			"runtime/hccl/...", "runtime/acl/...", "runtime/npu/...", "runtime/libnixl/...", "runtime/plane/nixl/..."}},

	// Fuzz tests of the readers of peers' bytes, for users to import. They import only the readers and a reference
	// library.
	{name: "fuzz/...", own: []string{"protocol/..."}, foreign: []string{"github.com/vmihailenco/msgpack/v5"}},
	// seek runs seeds for tools/mutants, which builds it once for each defect.
	{name: "tools/mutants/seek", own: []string{"sim", "sim/oracle"}, foreign: none},
	// guard runs the commands of two commits, so it must not be compiled against the code of either.
	{name: "tools/guard", own: none, foreign: none},
	// between has a real node, between two real engines.
	{name: "tools/interop/between", own: []string{"runtime/..."}, foreign: none},
	{name: "tools/compare/peer", own: []string{"effects", "runtime/..."}, foreign: []string{"github.com/pebbe/zmq4"}},
	// transcript plays the transcripts of the state machines' tests; the machines must not import it.
	{name: "tools/transcript", own: []string{"effects"}, foreign: []string{"github.com/cockroachdb/datadriven"}},
	{name: "tools/...", own: []string{"tools/..."}},
	{name: "examples/...", own: []string{"effects", "runtime/..."}},
	{name: "cmd/...", own: []string{"effects", "identity", "protocol", "fsm/...", "sim/...", "runtime/...", "cmd/..."}},
	// A package without a row may not import packages of this module.
	{name: "...", own: none},
}

// memory lists the packages that the rooms of pages may import.
func memory() []string {
	return []string{"effects", "protocol", "fsm/prng", "fsm/table", "fsm/rank/kernel/...", "fsm/rank/env", "fsm/rank/memory/..."}
}

// peers lists the packages that the rooms of peers may import.
func peers() []string { return append(memory(), "identity", "fsm/rank/peers/...") }

// shared lists the packages that all flows may import.
func shared() []string {
	return append(peers(), "fsm/rank/flows/flow", "fsm/rank/flows/engine", "fsm/rank/flows/deferred")
}

func with(list []string, more ...string) []string { return slices.Concat(list, more) }

// matches reports whether a pattern, with or without /..., covers path.
func matches(pattern, path string) bool {
	if pattern == "..." {
		return true
	}
	if below, ok := strings.CutSuffix(pattern, "/..."); ok {
		return path == below || strings.HasPrefix(path, below+"/")
	}
	return path == pattern
}

func covered(patterns []string, path string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return matches(p, path) })
}

func roomOf(path string) room {
	return rooms[slices.IndexFunc(rooms, func(r room) bool { return matches(r.name, path) })]
}

// breach returns the reason that a package in r may not import path, or "".
func (r room) breach(path string) string {
	own, isOwn := strings.CutPrefix(path, module+"/")
	host, _, _ := strings.Cut(path, "/")
	switch {
	case isOwn && !covered(r.own, own):
		return "its room may not import that package of ours"
	case isOwn && covered(r.not, own):
		return "it is handed that room's work through an interface"
	case isOwn || path == module:
		return ""
	case strings.Contains(host, "."):
		if r.foreign != nil && !covered(r.foreign, path) {
			return "its room may not import that module"
		}
	case r.std != nil && !slices.Contains(r.std, path):
		return "its room is pure and that package is not on its list"
	}
	return ""
}

type listed struct {
	ImportPath string
	Imports    []string
}

// list returns the packages of this module with their imports, without tests, by path below the module.
func list(t *testing.T) map[string][]string {
	t.Helper()
	cmd := exec.Command("go", "list", "-e", "-json=ImportPath,Imports", module+"/...")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, stderr.Bytes())
	}
	packages := map[string][]string{}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return packages
		} else if err != nil {
			t.Fatal(err)
		}
		packages[strings.TrimPrefix(p.ImportPath, module+"/")] = p.Imports
	}
}

func TestWalls(t *testing.T) {
	packages := list(t)
	for _, must := range []string{"effects", "protocol", "fsm/rank", "fsm/rank/memory", "fsm/communicator", "sim", "runtime",
		"cmd/kvferry"} {
		if _, ok := packages[must]; !ok {
			t.Errorf("there is no package %s: the wall around it stands around nothing", must)
		}
	}
	for path, imports := range packages {
		r := roomOf(path)
		for _, imported := range imports {
			if why := r.breach(imported); why != "" {
				t.Errorf("%s imports %s: %s (row %q)", path, imported, why, r.name)
			}
		}
	}
}

// TestPureAllTheWay follows the imports of the pure rooms through this module, because an allowed package must not
// import a forbidden one. Other modules are not checked; for example, uuid uses the clock.
func TestPureAllTheWay(t *testing.T) {
	packages := list(t)
	for path := range packages {
		if !matches("effects", path) && !matches("fsm/...", path) {
			continue
		}
		seen := map[string]bool{}
		var walk func(at string, way []string)
		walk = func(at string, way []string) {
			if seen[at] {
				return
			}
			seen[at] = true
			way = with(way, at)
			for _, imported := range packages[at] {
				if own, ok := strings.CutPrefix(imported, module+"/"); ok {
					walk(own, way)
				} else if !strings.Contains(imported, ".") && !slices.Contains(pureStd, imported) {
					t.Errorf("%s reaches %s by way of %s", path, imported, strings.Join(way, " -> "))
				}
			}
		}
		walk(path, nil)
	}
}

func TestBreach(t *testing.T) {
	for _, c := range []struct {
		from, to string
		ok       bool
	}{
		{"effects", "slices", true},
		{"effects", "time", false},
		{"effects", module + "/protocol", false},
		{"fsm/rank/memory/store", module + "/fsm/rank/peers/link", false},
		{"fsm/rank/memory/store", module + "/fsm/rank/memory", true},
		{"fsm/rank/flows/push", module + "/fsm/rank/flows/pull", false},
		{"fsm/rank", module + "/fsm/rank/flows/pull", true},
		{"fsm/rank", "unsafe", false},
		{"fsm/rank", "github.com/google/uuid", false},
		{"protocol", "github.com/google/uuid", false},
		{"protocol", "github.com/vmihailenco/msgpack/v5", false},
		{"protocol/internal/scan", "sync", false},
		{"sim", "pgregory.net/rapid", true},
		{"sim", "github.com/pebbe/zmq4", false},
		{"sim", module + "/runtime", false},
		{"runtime", module + "/runtime/plane", true},
		{"runtime", module + "/runtime/plane/shm", false},
		{"runtime", module + "/runtime/control/zmq", false},
		{"runtime", module + "/runtime/acl", false},
		{"runtime/acl", module + "/effects", false},
		{"runtime/acl", module + "/runtime/plane", false},
		{"runtime/plane/tcp", module + "/runtime/plane", true},
		{"runtime/plane/tcp", module + "/runtime/plane/shm", false},
		{"runtime/plane/tcp", module + "/fsm/rank/memory", false},
		{"runtime/control/zmq", "github.com/pebbe/zmq4", false},
		{"runtime/control/libzmq", "github.com/pebbe/zmq4", true},
		{"runtime", module + "/runtime/control/libzmq", false},
		{"cmd/kvferry", module + "/runtime/plane/shm", true},
		{"runtime", module + "/cmd/kvferry", false},
		{"newroom", module + "/effects", false},
	} {
		if why := roomOf(c.from).breach(c.to); (why == "") != c.ok {
			t.Errorf("%s importing %s: got %q, want allowed %v", c.from, c.to, why, c.ok)
		}
	}
}
