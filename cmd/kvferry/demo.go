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
	var most int
	var asJSON, noCrash, all bool
	var on deviceFlags
	var share shareFlags
	var registered registeredFlags
	o := demo.Options{}
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Replay a request trace through real processes and verify every byte",
		Long: `demo starts one proxy, one prefill and two decode processes on this machine, with
real sockets and a real data plane, replays a request trace with KV bytes that
follow from their keys, and verifies every byte where it arrived. On the way it
kills a decode process as kill -9 does and starts it again, then the prefill. It
does so once for each mode: push, pull, pull-delay, where a decode reads chunks when
its engine fetches them, pull-delay+offload, where a prefill on an NPU has its pool in host
memory, and layerwise, where the prefill computes for as long as a large model would,
in steps, and pushes each layer when it is done; some prefills are preempted. A decode
that delays must hold no more pages than two batches.

With --role both there is no prefill and no decode: three nodes in a ring are either
at once, and each puts to the next. The third is killed on the way, then the first.

With --bidirectional (pd_bidirectional) decodes keep what their engines have read, and
who would compute a request's chunks reads back first what its decode still has of
them; every byte of that is verified, too. This is played in push and pull.

With --mode p2p there are directories and three instances that share what they have
computed. Requests are dealt to them in turn; each brings from its peers what they
have of its prefix, computes the rest and stores it. Each tells one directory, and
directories tell each other by a Valkey or Redis server, if one is installed. An
instance is killed while others read from it, then a directory, then that server, and
each is started again. It ends with what was brought and not computed, and why the
rest was not. With --role both each instance puts what it has to the next one as well.

With --mode push-reg the pools are the engines' own blocks: decode ranks register
those that they want written, and prefill ranks write them, whichever come first.
Each rank is a process; --prefill-tp and --decode-tp say how many there are. Either
engine aborts requests on the way; a decode rank is killed, then a prefill rank.

With --plane nixl pages go over libnixl, loaded from where KVFERRY_LIBNIXL says (make
nixl fetches it), in every mode; agents take the place of connections, and what they
were doing for a process that is killed is proven over before its pages are used.

With --tour every kind that needs no NPU and no library is played once, with a line for
each; make demo does that.

With --device npu the pages lie in the memory of Ascend NPUs, whose links carry them;
each node has one, npu:0 to npu:2. Without an NPU the software one stands in for it,
a library that make softnpu builds: it counts every object, checks every rule of the
interface, and takes faults, which --faults plays instead of the kills.

It exits with 1 if any byte was wrong, a request was lost, or anything was left
pinned or on an NPU.`,
		Example: `  kvferry demo
  kvferry demo --tour
  kvferry demo --mode pull-delay --json
  kvferry demo --role both --mode push
  kvferry demo --role both --bidirectional
  kvferry demo --mode p2p
  kvferry demo --mode push-reg --decode-tp 4
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
			if most < 1 {
				return usagef("--requests is %d; play at least one", most)
			}
			if all {
				err := checkTour(cmd)
				if err != nil {
					return err
				}
				o.Crash, o.Log = !noCrash, cmd.ErrOrStderr()
				if o.Trace, o.Requests, err = readTrace(file, most); err != nil {
					return err
				}
				return playTour(cmd, tour(), o, asJSON)
			}
			npus, err := on.check(&o.Plane)
			if err != nil {
				return err
			}
			if err := registered.check(cmd, mode, role, &on, o.Recall); err != nil {
				return err
			}
			if demo.Mode(mode) == demo.PushReg {
				o.Mode, o.Crash, o.Log = demo.PushReg, !noCrash, cmd.ErrOrStderr()
				if o.Trace, o.Requests, err = readTrace(file, most); err != nil {
					return err
				}
				registered.Options = o
				return playRegistered(cmd, registered.RegisteredOptions, asJSON)
			}
			modes, shares, err := demo.ParseModes(mode)
			if err != nil {
				return usageError{err}
			}
			if err := share.check(cmd, shares, role, &on); err != nil {
				return err
			}
			if shares {
				o.Ring, o.Crash, o.Log = role == roleBoth, !noCrash, cmd.ErrOrStderr()
				if o.Trace, o.Requests, err = readTrace(file, most); err != nil {
					return err
				}
				return playShared(cmd, demo.SharedOptions{Options: o, Directories: share.directories, Pages: share.pages}, modes,
					asJSON)
			}
			if modes, err = modesOf(role, modes, npus); err != nil {
				return err
			}
			if modes, err = recallModes(o.Recall, modes, npus); err != nil {
				return err
			}
			o.Ring = role == roleBoth
			if o.Trace, o.Requests, err = readTrace(file, most); err != nil {
				return err
			}
			o.Crash, o.Log = !noCrash && on.faults == "", cmd.ErrOrStderr()
			return playModes(cmd, o, modes, npus, asJSON)
		},
	}
	addJSONFlag(cmd, &asJSON)
	cmd.Flags().StringVar(&file, "trace", "", "a request trace, JSON lines; a small one of our own without it")
	cmd.Flags().IntVar(&most, "requests", 1000, "how many requests of the trace are played, from its start")
	cmd.Flags().StringVar(&mode, "mode", "all", "how chunks go: "+demo.ModeNames())
	cmd.Flags().BoolVar(&all, "tour", false, "play every kind of demo once, with a line for each")
	cmd.Flags().StringVar(&role, "role", "each", "what nodes are: each has one side, or both")
	cmd.Flags().BoolVar(&o.Recall, "bidirectional", false, "prefills read back what decodes still have")
	cmd.Flags().StringVar(&o.Plane, "plane", "auto", "how pages of process memory travel: auto, shm, tcp or nixl")
	on.add(cmd)
	share.add(cmd)
	registered.add(cmd)
	cmd.Flags().Float64Var(&o.Speed, "speed", 0, "speed of the trace's clock; 0 is as fast as it goes")
	cmd.Flags().IntVar(&o.Concurrency, "concurrency", 4, "requests in progress at a time")
	cmd.Flags().BoolVar(&noCrash, "no-crash", false, "kill no process on the way")
	return cmd
}

// roleBoth is the --role of nodes that have both roles, prefill and decode.
const roleBoth = "both"

// modesOf leaves out the modes that nodes of the role do not have, if all modes were requested.
func modesOf(role string, modes []demo.Mode, npus []*demo.NPU) ([]demo.Mode, error) {
	switch role {
	case "each":
		return modes, nil
	case roleBoth:
	default:
		return nil, usagef("--role is %q; use each or both", role)
	}
	if npus[0] != nil {
		return nil, usagef("--role both is played over memory of the processes; leave out --device npu")
	}
	able := slices.DeleteFunc(slices.Clone(modes), func(m demo.Mode) bool { return !slices.Contains(demo.RingModes(), m) })
	if len(able) == 0 {
		return nil, usagef("--mode is %s, in which nodes of pd_role both are refused: they do not offload", modes[0])
	}
	return able, nil
}

// recallModes leaves out the modes in which nodes do not recall, if all modes were requested.
func recallModes(wanted bool, modes []demo.Mode, npus []*demo.NPU) ([]demo.Mode, error) {
	if !wanted {
		return modes, nil
	}
	if npus[0] != nil {
		return nil, usagef("--bidirectional is played over memory of the processes; leave out --device npu")
	}
	able := slices.DeleteFunc(slices.Clone(modes),
		func(m demo.Mode) bool { return !slices.Contains(demo.RecallModes(), m) })
	if len(able) == 0 {
		return nil, usagef("--mode is %s, in which decodes have nothing to read back: chunks go past their pools", modes[0])
	}
	return able, nil
}

// playModes replays the trace once for each mode and each kind of NPU, with new processes each time. A nil NPU stands
// for host memory.
func playModes(cmd *cobra.Command, o demo.Options, modes []demo.Mode, npus []*demo.NPU, asJSON bool) error {
	var all demo.Summary[*demo.Report]
	for _, o.NPU = range npus {
		for _, o.Mode = range o.NPU.In(modes) {
			finish := showReplayProgress(cmd.ErrOrStderr(), string(o.Mode), &o)
			report, err := demo.Run(cmd.Context(), o)
			finish()
			if err != nil {
				return explainNPU(err, o.NPU)
			}
			all.Add(report)
			if asJSON {
				continue
			}
			if err := report.Print(cmd.OutOrStdout()); err != nil {
				return err
			}
		}
	}
	if asJSON {
		if err := printJSON(cmd.OutOrStdout(), all); err != nil {
			return err
		}
	}
	if len(all.Modes) == 0 && npus[0] == nil {
		return usagef("--mode is %s, which is for NPUs: without one the prefill's pool lies in host memory in each mode; "+
			"add --device npu, or use --mode %s", modes[0], demo.PullDelay)
	}
	if len(all.Modes) == 0 {
		return usagef("these faults strike in none of these modes; use --mode all")
	}
	if !all.OK {
		return errFinding
	}
	return nil
}

func readTrace(file string, most int) (name string, requests []trace.Request, err error) {
	limits := trace.DefaultLimits()
	limits.Requests = most
	in := io.Reader(strings.NewReader(traces.Chat))
	name = "chat.jsonl (our own)"
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

// progressEvery is the time between lines of progress if the output is not a terminal.
const progressEvery = 10 * time.Second

// showReplayProgress draws a progress bar if w is a terminal; otherwise it writes a line every progressEvery. The
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
	var ended atomic.Int64
	o.Progress = func(done, _ int) { ended.Store(int64(done)) }
	stop, stopped, all := make(chan struct{}), make(chan struct{}), len(o.Requests)
	go func() {
		defer close(stopped)
		for tick := time.NewTicker(progressEvery); ; {
			select {
			case <-stop:
				tick.Stop()
				return
			case <-tick.C:
				fmt.Fprintf(w, "  ... %s: %d of %d requests\n", name, ended.Load(), all)
			}
		}
	}()
	return func() {
		close(stop)
		<-stopped
	}
}
