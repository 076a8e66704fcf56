package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
	"golang.org/x/term"

	"github.com/kvferry/kvferry/cmd/kvferry/internal/demo"
	"github.com/kvferry/kvferry/cmd/kvferry/internal/trace"
	"github.com/kvferry/kvferry/cmd/kvferry/traces"
)

func newDemoCommand() *cobra.Command {
	var file, mode, role string
	var maxRequests int
	var asJSON, noCrash, playAll bool
	var device deviceFlags
	var share shareFlags
	var registered registeredFlags
	var other otherFlags
	var chaos chaosFlags
	o := demo.Options{}
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Replay a request trace through real processes and verify every byte",
		Long: `demo starts a proxy, a prefill node and two decode nodes as processes on this machine,
with real sockets and a real data plane. It replays a request trace and verifies every
byte at the receiver; the KV bytes of a chunk are a function of the chunk's key. During
the replay it kills a decode process with kill -9 and starts it again, and then does the
same with the prefill process. It replays the trace once in each mode:

  push                the prefill node writes the chunks into the decode node's pool
  pull                the decode node reads the chunks as soon as they are offered
  pull-delay          the decode node reads the chunks when its engine fetches them, and
                      its staging takes at most the pages of two batches
  pull-delay+offload  as pull-delay, from a prefill node on an NPU with its pool in host
                      memory; only with --device npu
  layerwise           the prefill node computes in steps, as slowly as a large model
                      would, and pushes each layer when it is computed; some requests
                      are preempted

--role both replays with a ring of three nodes that are prefill and decode nodes at the
same time. Each node puts chunks to the next. The third node is killed, then the first.

--bidirectional (pd_bidirectional) makes decode nodes keep the chunks that their engines
have read. Before a prefill node computes a request, it recalls the chunks that the
decode node still has. It is played in the modes push and pull.

--mode p2p replays with directories and three instances that share their caches. Each
request goes to the next instance in turn, which brings the longest cached prefix from
its peers, and computes and stores the rest. Each instance reports to one directory, and
the directories share a log on a Valkey or Redis server, if one is installed. An instance
is killed while peers read from it, then a directory, then the log's server, and each is
started again. The report says how many chunks came from peers, and why the others did
not. With --role both, each instance also puts its chunks to the next instance.

--mode push-reg replays with pools that consist of the engines' own blocks. Decode ranks
register the blocks to be written, and prefill ranks write them, in either order. Each
rank is a process; --prefill-tp and --decode-tp set the number of ranks. Some requests
are aborted. A decode rank is killed, then a prefill rank.

--plane nixl moves the pages over libnixl in every mode. The library is loaded from the
path in KVFERRY_LIBNIXL (make nixl fetches it).

--secure plays with security.mode: strict. All processes have certificates of an authority
that the demo makes, and all certificates are renewed every second. Over libnixl and
between NPUs the connections of the nodes are secured, and the pages are not encrypted.

--other plays with two releases of kvferry: the processes of --other-runs run that binary,
and all other processes run this one. With --upgrade, a process that is killed starts
again as this release, as in an upgrade under load.

--chaos DURATION replays in one mode after the other until the time is over, while one strike
after another hits the nodes: a process is killed, stopped for a while, or cannot open files.
With --chaos-network, in a network namespace of its own, packets are dropped too. Each
request must succeed in the end, and no byte may be wrong. The command make chaos does this.

--soak N plays the trace N times in the same processes, without kills, and fails if a node uses
more memory, files or goroutines in the last fifth than before. The command make soak does this.

--tour plays every kind of replay that needs no NPU and no library once, and prints a
line for each. The command make demo does this.

--device npu places the pages in the memory of Ascend NPUs, npu:0 to npu:2, one for each
node. Without an NPU, use the software NPU, a library that make softnpu builds. It
counts every object and checks every rule of the interface, and it can inject faults:
--faults plays them instead of killing processes.

The exit code is 1 if a byte was wrong, a request was lost, or a resource was not
released at the end.`,
		Example: `  kvferry demo
  kvferry demo --tour
  kvferry demo --mode pull-delay --json
  kvferry demo --role both --mode push
  kvferry demo --role both --bidirectional
  kvferry demo --mode p2p
  kvferry demo --mode push-reg --decode-tp 4
  kvferry demo --mode push --plane tcp --secure
  kvferry demo --chaos 10m --mode push --plane tcp
  kvferry demo --soak 100 --mode pull
  kvferry demo --mode push --plane nixl --secure
  kvferry demo --mode pull --other /opt/kvferry-0.1.0/bin/kvferry --other-runs decode --upgrade
  kvferry demo --trace conversation_trace.jsonl --requests 200 --plane tcp
  kvferry demo --mode push-reg --plane nixl --prefill-tp 1 --decode-tp 2
  kvferry demo --device npu --library .cache/softnpu/plain/libcannemu.so --faults all`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.Concurrency < 1 || o.Concurrency > 64 {
				return usagef("--concurrency is %d; use 1 to 64", o.Concurrency)
			}
			if o.Speed < 0 {
				return usagef("--speed is %g; use 0 for no pauses, 1 for the trace's own time", o.Speed)
			}
			var err error
			if o.Other, err = other.resolve(cmd); err != nil {
				return err
			}
			if o.Layers < 1 || o.Layers > demo.LayersMax {
				return usagef("--layers is %d; use 1 to %d", o.Layers, demo.LayersMax)
			}
			if _, shares, _ := demo.ParseModes(mode); cmd.Flags().Changed("layers") && (shares || demo.Mode(mode) == demo.PushReg) {
				return usagef("--layers and --mode %s: the mode has a model of its own; leave out --layers", mode)
			}
			if maxRequests < 1 {
				return usagef("--requests is %d; give at least 1", maxRequests)
			}
			chaosModes, _, _ := demo.ParseModes(mode) // A wrong mode is told below.
			if err := chaos.check(cmd, chaosModes); err != nil {
				return err
			}
			if playAll {
				if err := checkTour(cmd); err != nil {
					return err
				}
				o.Crash, o.Log = !noCrash, cmd.ErrOrStderr()
				if o.Trace, o.Requests, err = readTrace(file, maxRequests); err != nil {
					return err
				}
				return playTour(cmd, tourRuns(), o, asJSON)
			}
			npus, err := device.resolveNPUs(&o.Plane)
			if err != nil {
				return err
			}
			if err := registered.checkUsage(cmd, mode, role, &device, o.Recall); err != nil {
				return err
			}
			if demo.Mode(mode) == demo.PushReg {
				o.Mode, o.Crash, o.Log = demo.PushReg, !noCrash, cmd.ErrOrStderr()
				if o.Trace, o.Requests, err = readTrace(file, maxRequests); err != nil {
					return err
				}
				registered.Options = o
				return playRegistered(cmd, registered.RegisteredOptions, asJSON)
			}
			modes, isSharing, err := demo.ParseModes(mode)
			if err != nil {
				return usageError{err}
			}
			if err := share.checkUsage(cmd, isSharing, role, &device); err != nil {
				return err
			}
			if isSharing {
				o.Ring, o.Crash, o.Log = role == roleBoth, !noCrash, cmd.ErrOrStderr()
				if o.Trace, o.Requests, err = readTrace(file, maxRequests); err != nil {
					return err
				}
				return playSharing(cmd, demo.SharingOptions{Options: o, Directories: share.directories, Pages: share.pages}, modes,
					asJSON)
			}
			if modes, err = modesForRole(role, modes, npus); err != nil {
				return err
			}
			if modes, err = modesForRecall(o.Recall, modes, npus); err != nil {
				return err
			}
			o.Ring = role == roleBoth
			if o.Trace, o.Requests, err = readTrace(file, maxRequests); err != nil {
				return err
			}
			o.Crash, o.Log = !noCrash && device.faults == "", cmd.ErrOrStderr()
			if chaos.soak > 0 {
				o.Soak, o.Crash, o.Requests = true, false, slices.Repeat(o.Requests, chaos.soak)
			}
			if chaos.duration > 0 {
				return playChaos(cmd, o, (*demo.NPU)(nil).SupportedModes(modes), &chaos, asJSON)
			}
			return playModes(cmd, o, modes, npus, asJSON)
		},
	}
	addJSONFlag(cmd, &asJSON)
	cmd.Flags().StringVar(&file, "trace", "", "the request trace, JSON lines (default: a small trace that is built in)")
	cmd.Flags().IntVar(&maxRequests, "requests", 1000, "the number of requests to play, from the start of the trace")
	cmd.Flags().StringVar(&mode, "mode", "all", "the mode: "+demo.ModeNames())
	cmd.Flags().BoolVar(&playAll, "tour", false, "play every kind of replay once, and print a line for each")
	cmd.Flags().StringVar(&role, "role", "each", "each: a node is a prefill or a decode node; both: every node is both")
	cmd.Flags().BoolVar(&o.Recall, "bidirectional", false, "prefill nodes recall the chunks that decode nodes still have")
	cmd.Flags().StringVar(&o.Plane, "plane", "auto", "the data plane for pages in host memory: auto, shm, tcp or nixl")
	device.addTo(cmd)
	share.addTo(cmd)
	registered.addTo(cmd)
	other.addTo(cmd)
	chaos.addTo(cmd)
	cmd.Flags().Float64Var(&o.Speed, "speed", 0, "speed of the replay relative to the trace's timestamps; 0 is as fast as possible")
	cmd.Flags().IntVar(&o.Concurrency, "concurrency", 4, "requests in progress at a time")
	cmd.Flags().IntVar(&o.Layers, "layers", demo.LayersMax, "layers of the model at most; with fewer, all processes need less memory")
	cmd.Flags().BoolVar(&o.Secure, "secure", false, "authenticate and encrypt all connections (security.mode: strict)")
	cmd.Flags().BoolVar(&noCrash, "no-crash", false, "do not kill processes during the replay")
	return cmd
}

// roleBoth is the --role of nodes that have both roles, prefill and decode.
const roleBoth = "both"

// modesForRole leaves out the modes that nodes of the role do not have, if all modes were requested.
func modesForRole(role string, modes []demo.Mode, npus []*demo.NPU) ([]demo.Mode, error) {
	switch role {
	case "each":
		return modes, nil
	case roleBoth:
	default:
		return nil, usagef("--role is %q; use each or both", role)
	}
	if npus[0] != nil {
		return nil, usagef("--role both is played only in host memory; leave out --device npu")
	}
	supported := slices.DeleteFunc(slices.Clone(modes), func(m demo.Mode) bool { return !slices.Contains(demo.RingModes(), m) })
	if len(supported) == 0 {
		return nil, usagef("--mode is %s, which nodes with pd_role both do not support; use another mode, or leave out --role both", modes[0])
	}
	return supported, nil
}

// modesForRecall leaves out the modes in which nodes do not recall, if all modes were requested.
func modesForRecall(recall bool, modes []demo.Mode, npus []*demo.NPU) ([]demo.Mode, error) {
	if !recall {
		return modes, nil
	}
	if npus[0] != nil {
		return nil, usagef("--bidirectional is played only in host memory; leave out --device npu")
	}
	supported := slices.DeleteFunc(slices.Clone(modes),
		func(m demo.Mode) bool { return !slices.Contains(demo.RecallModes(), m) })
	if len(supported) == 0 {
		return nil, usagef("--mode is %s, in which decode nodes keep no chunks to recall; use push or pull", modes[0])
	}
	return supported, nil
}

// playModes replays the trace once for each mode and each kind of NPU, with new processes each time. A nil NPU stands
// for host memory.
func playModes(cmd *cobra.Command, o demo.Options, modes []demo.Mode, npus []*demo.NPU, asJSON bool) error {
	var summary demo.Summary[*demo.Report]
	for _, o.NPU = range npus {
		for _, o.Mode = range o.NPU.SupportedModes(modes) {
			finish := showReplayProgress(cmd.ErrOrStderr(), string(o.Mode), &o)
			report, err := demo.Run(cmd.Context(), o)
			finish()
			if err != nil {
				return addNPUHint(err, o.NPU)
			}
			summary.Add(report)
			if asJSON {
				continue
			}
			if err := report.Print(cmd.OutOrStdout()); err != nil {
				return err
			}
		}
	}
	if asJSON {
		if err := printJSON(cmd.OutOrStdout(), summary); err != nil {
			return err
		}
	}
	if len(summary.Modes) == 0 && npus[0] == nil {
		return usagef("--mode is %s, which needs an NPU, because without an NPU the pool is in host memory anyway; "+
			"add --device npu, or use --mode %s", modes[0], demo.PullDelay)
	}
	if len(summary.Modes) == 0 {
		return usagef("the faults cannot occur in this mode; use --mode all")
	}
	if !summary.OK {
		return errFinding
	}
	return nil
}

func readTrace(file string, maxRequests int) (name string, requests []trace.Request, err error) {
	limits := trace.DefaultLimits()
	limits.Requests = maxRequests
	in := io.Reader(strings.NewReader(traces.Chat))
	name = "chat.jsonl (built in)"
	if file != "" {
		f, err := os.Open(file)
		if err != nil {
			return "", nil, usageError{err}
		}
		defer f.Close()
		in, name = f, file
	}
	requests, err = trace.Read(name, in, limits)
	return name, requests, err
}

// progressInterval is the time between lines of progress if the output is not a terminal.
const progressInterval = 10 * time.Second

// showReplayProgress draws a progress bar if w is a terminal; otherwise it writes a line every progressInterval. The
// returned function ends the output.
func showReplayProgress(w io.Writer, name string, o *demo.Options) (finish func()) {
	if f, isFile := w.(*os.File); isFile && term.IsTerminal(int(f.Fd())) {
		p := mpb.New(mpb.WithOutput(w), mpb.WithWidth(48))
		bar := p.AddBar(int64(len(o.Requests)),
			mpb.PrependDecorators(decor.Name(name+" "), decor.CountersNoUnit("%d/%d")),
			mpb.AppendDecorators(decor.Elapsed(decor.ET_STYLE_MMSS)))
		o.Progress = func(done, _ int) { bar.SetCurrent(int64(done)) }
		return func() {
			bar.Abort(false) // Abort has no effect on a full bar.
			p.Wait()
		}
	}
	var endedRequests atomic.Int64
	o.Progress = func(done, _ int) { endedRequests.Store(int64(done)) }
	stop, stopped, all := make(chan struct{}), make(chan struct{}), len(o.Requests)
	go func() {
		defer close(stopped)
		for tick := time.NewTicker(progressInterval); ; {
			select {
			case <-stop:
				tick.Stop()
				return
			case <-tick.C:
				fmt.Fprintf(w, "  ... %s: %d of %d requests\n", name, endedRequests.Load(), all)
			}
		}
	}()
	return func() {
		close(stop)
		<-stopped
	}
}
