package doctor

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/kvferry/kvferry/runtime/acl"
	"github.com/kvferry/kvferry/runtime/config"
	controls "github.com/kvferry/kvferry/runtime/control"
	"github.com/kvferry/kvferry/runtime/hccl/comm"
	"github.com/kvferry/kvferry/runtime/libnixl"
)

// TestChecks runs testdata/checks/*.txt. A case names a check. Its arguments are the answers of system calls, its input
// lists the machine's files, one per line as "path content" (\n in the content is a line break), and its output is the
// rows.
func TestChecks(t *testing.T) {
	datadriven.Walk(t, "testdata/checks", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, td *datadriven.TestData) string {
			s := Section{Name: td.Cmd}
			m := machineOf(t, td)
			switch td.Cmd {
			case "kernel":
				m.checkKernel(&s)
			case "boot":
				m.checkBoot(&s)
			case "processors":
				m.checkCores(&s)
			case "limits":
				var cfg *config.Config
				if td.HasArg("conns") {
					cfg = &config.Config{}
					td.ScanArgs(t, "conns", &cfg.Bounds.Conns)
				}
				if td.HasArg("locks") {
					cfg = &config.Config{Pool: config.Pool{Lock: true}, Bounds: config.Bounds{Conns: 16}}
					td.ScanArgs(t, "locks", &cfg.BufferBytes)
				}
				if td.HasArg("huge") {
					cfg = &config.Config{Pool: config.Pool{HugePages: true}, Bounds: config.Bounds{Conns: 16}}
					td.ScanArgs(t, "huge", &cfg.BufferBytes)
				}
				m.checkLimits(&s, cfg, td.HasArg("npu"))
			case "memory":
				m.checkMemory(&s)
			case "speed":
				m.checkHostCopy(&s, 64<<20)
			case "network":
				m.checkNetwork(&s)
			case "npus":
				m.checkNPUs(&s, npusOf(t, td), td.HasArg("wanted"))
			case "device":
				n := npusOf(t, td)
				s = m.checkDevice(n.Devices[0], commonNode(m.findCards()), 64<<20)
			case "hccl":
				m.checkHCCL(&s, npusOf(t, td).HCCL, wantsOf(td).Config)
			case "nixl":
				m.checkNIXL(&s, nixlOf(t, td), wantsOf(td).Config, 1<<30)
			case "links":
				checkLinks(&s, npusOf(t, td))
			case "configuration":
				w := wantsOf(td)
				if td.HasArg("nolibzmq") {
					w.NoLibZMQ = &controls.Error{Remedy: "build it"}
				}
				m.checkConfig(&s, w, npusOf(t, td))
			default:
				td.Fatalf(t, "unknown command %q", td.Cmd)
			}
			return printed(t, s)
		})
	})
}

func printed(t *testing.T, s Section) string {
	t.Helper()
	for _, row := range s.Rows {
		if (row.Verdict == OK) != (row.Remedy == "") {
			t.Errorf("%q is %v and has the remedy %q", row.Name, row.Verdict, row.Remedy)
		}
		if strings.Contains(row.Value, "%!") {
			t.Errorf("%q is %q", row.Name, row.Value)
		}
	}
	var b strings.Builder
	if err := newReport(s).Print(&b); err != nil {
		t.Fatal(err)
	}
	rows, _, _ := strings.Cut(b.String(), "\n\n")
	if len(s.Rows) == 0 {
		return "nothing\n"
	}
	return rows + "\n"
}

// machineOf returns a machine with the files of a case, whose calls answer as the arguments of the case say.
func machineOf(t *testing.T, td *datadriven.TestData) Machine {
	files := fstest.MapFS{}
	env := map[string]string{}
	for line := range strings.Lines(td.Input) {
		if strings.HasPrefix(line, "| ") {
			continue
		}
		name, content, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		if variable, is := strings.CutPrefix(name, "$"); is {
			env[variable] = content
			continue
		}
		files[name] = &fstest.MapFile{Data: []byte(strings.ReplaceAll(content, `\n`, "\n") + "\n")}
	}
	answer := func(key string) error {
		if !td.HasArg(key) {
			return nil
		}
		var text string
		td.ScanArgs(t, key, &text)
		return errors.New(text)
	}
	return Machine{
		Root:     files,
		Env:      func(name string) string { return env[name] },
		Memfd:    func() error { return answer("memfd") },
		Writable: func(string) error { return answer("unwritable") },
		Clocks: func() (boottime, monotonic time.Duration, err error) {
			boottime, monotonic = time.Hour, time.Hour
			if td.HasArg("asleep") {
				var text string
				td.ScanArgs(t, "asleep", &text)
				asleep, err := time.ParseDuration(text)
				if err != nil {
					t.Fatal(err)
				}
				boottime += asleep
			}
			return boottime, monotonic, answer("clocks")
		},
		Interfaces: func() (list []Interface, err error) {
			for _, arg := range td.CmdArgs {
				if arg.Key != "up" && arg.Key != "down" {
					continue
				}
				mtu, err := strconv.Atoi(arg.Vals[1])
				if err != nil {
					t.Fatal(err)
				}
				list = append(list, Interface{Name: arg.Vals[0], MTU: mtu, Up: arg.Key == "up", Loopback: arg.Vals[0] == "lo",
					Addresses: arg.Vals[2:]})
			}
			return list, answer("interfaces")
		},
		Listen: func(_ string, port uint16) error {
			for _, arg := range td.CmdArgs {
				if arg.Key == "taken" && arg.Vals[0] == strconv.Itoa(int(port)) {
					return errors.New("address already in use")
				}
			}
			return nil
		},
		HostCopy: func(uint64) (float64, error) {
			perSecond := 12.34e9
			if td.HasArg("rate") {
				td.ScanArgs(t, "rate", &perSecond)
			}
			return perSecond, answer("copy")
		},
		NPUs: func(context.Context, Libraries, uint64) NPUs { return npusOf(t, td) },
		NIXL: func(context.Context, libnixl.Options, string, uint64) NIXL { return nixlOf(t, td) },
	}
}

// nixlOf returns the result of the test of libnixl for a case. Without arguments, there is no library.
func nixlOf(t *testing.T, td *datadriven.TestData) NIXL {
	t.Helper()
	n := NIXL{Err: &libnixl.LoadError{Attempts: []libnixl.Attempt{{Library: "libnixl_capi.so",
		Reason: "libnixl_capi.so: no such file"}}}}
	for _, arg := range td.CmdArgs {
		switch arg.Key {
		case "library":
			n = NIXL{Info: libnixl.Info{Library: arg.Vals[0]}, Agent: 20*time.Millisecond + 7,
				Write: Speed{Name: "write, verified", PerSecond: 3.2e9}}
		case "unset":
			n.Err = errors.New("libnixl: set UCX_MEM_EVENTS: invalid argument")
		case "signals":
			n.Info.Signals = parseList(arg.Vals[0])
		case "unwritten":
			n.Write.Err = &libnixl.Error{Call: "nixl_capi_create_backend", Status: libnixl.Backend}
		}
	}
	return n
}

var classes = map[string]acl.Code{"memory": 207001, "permission": 207006, "lost": 507010, "timeout": 507046,
	"internal": 507000}

// npusOf returns the NPUs of a case. Without arguments, there are none.
func npusOf(t *testing.T, td *datadriven.TestData) NPUs {
	n := NPUs{Err: &acl.LoadError{Attempts: []acl.Attempt{
		{Library: "libascendcl.so", Reason: "libascendcl.so: no such file"}, {Library: "libacl_rt.so",
			Missing: []string{"aclInit"}},
	}}}
	failed := func(vals []string) error {
		if len(vals) == 0 || classes[vals[0]] == 0 {
			td.Fatalf(t, "unknown failure %v", vals)
		}
		return &acl.Error{Code: classes[vals[0]], Call: "aclrtCall"}
	}
	for _, arg := range td.CmdArgs {
		switch arg.Key {
		case "library":
			n = NPUs{Info: acl.Info{Library: arg.Vals[0], ACL: acl.ACLVersion{Major: 1, Minor: 16}}}
		case "refused":
			n = NPUs{Err: failed(arg.Vals)}
		case "cann":
			n.Info.CANN = arg.Vals[0]
		case "soc":
			n.Info.SoC = arg.Vals[0]
		case "lacks":
			n.Info.Missing = arg.Vals
		case "signals":
			n.Info.Signals = parseList(arg.Vals[0])
		case "left":
			n.CloseErr = failed(arg.Vals)
		case "devices":
			number, err := strconv.Atoi(arg.Vals[0])
			if err != nil {
				t.Fatal(err)
			}
			for id := range number {
				n.Devices = append(n.Devices, Device{ID: id, Physical: id + 4, Total: 64 << 30, Free: 4 << 30,
					Reaches: map[int]bool{}})
			}
		case "unnumbered":
			n.Devices[0].Physical = -1
		case "pods":
			for i, pod := range arg.Vals {
				id, err := strconv.ParseInt(pod, 10, 64)
				if err != nil {
					t.Fatal(err)
				}
				n.Devices[i].SuperPod = &SuperPod{ID: id, Server: 1, Device: int64(i)}
			}
		case "apart": // the given devices, and all other devices
			for _, a := range parseList(arg.Vals[0]) {
				for b := range n.Devices {
					n.Devices[a].Reaches[b], n.Devices[b].Reaches[a] = false, false
				}
			}
		case "nohccl":
			n.HCCL.Err = &comm.LoadError{Attempts: []comm.Attempt{{Library: "libhcomm.so", Reason: "libhcomm.so: no such file"}}}
		case "misset":
			n.HCCL.Err = fmt.Errorf("hccl: %w: HCCL_RDMA_TIMEOUT is %q: give 5 to 20, or unset it", acl.Config, "long")
		case "exchange":
			n.HCCL.Info.Sequence = comm.Exchange
		case "hccl":
			n.HCCL.Info = comm.Info{Library: arg.Vals[0], Sequence: comm.Global, RDMATimeout: comm.Setting{Value: 15,
				From: comm.FromOptions}, RDMARetries: comm.Setting{Value: 7, From: comm.FromOptions}}
		case "tries":
			n.HCCL.Info.RDMATimeout = comm.Setting{Value: 20, From: comm.FromUser}
			n.HCCL.Info.RDMARetries = comm.Setting{Value: 7, From: comm.FromLibrary}
		case "early":
			n.HCCL.Info.RDMATimeout = comm.Setting{Value: 20, From: comm.FromLibrary}
		case "intra":
			n.HCCL.Info.IntraRoCE = true
		case "pcie":
			n.HCCL.Info.IntraPCIe = true
		case "hcclcann":
			n.HCCL.Info.CANN = arg.Vals[0]
		case "hccllacks":
			n.HCCL.Info.Missing = arg.Vals
		case "unusable":
			n.Devices[0].Err = failed(arg.Vals)
		case "copied":
			n.Devices[0].Copies = append(n.Devices[0].Copies, Speed{Name: "host to device", PerSecond: 25.06e9})
		case "stopped":
			n.Devices[0].Copies = append(n.Devices[0].Copies, Speed{Name: "host to device", Err: failed(arg.Vals)})
		}
	}
	return n
}

// wantsOf reads the YAML of a case, which is in the lines that begin with a bar.
func wantsOf(td *datadriven.TestData) (w Target) {
	var file strings.Builder
	for line := range strings.Lines(td.Input) {
		if text, is := strings.CutPrefix(line, "| "); is {
			file.WriteString(text)
		}
	}
	if file.Len() > 0 {
		w.Config, w.Err = config.Parse("node.yaml", []byte(file.String()), nil)
	}
	return w
}
