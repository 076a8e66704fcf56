package main

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvferry/kvferry/cmd/kvferry/internal/demo"
)

// chaosFlags are the flags of demo for replays that take long: with strikes, or in the same processes.
type chaosFlags struct {
	duration time.Duration
	seed     uint64
	network  bool
	soak     int
}

func (f *chaosFlags) addTo(cmd *cobra.Command) {
	cmd.Flags().DurationVar(&f.duration, "chaos", 0, "replay again and again for this time, while one strike after another hits the nodes")
	cmd.Flags().IntVar(&f.soak, "soak", 0, "play the trace this many times, without kills, and compare what the nodes use early and late")
	cmd.Flags().Uint64Var(&f.seed, "chaos-seed", 1, "the seed from which the strikes of the first round are drawn")
	cmd.Flags().BoolVar(&f.network, "chaos-network", false, "strike the loopback network too, in a network namespace of its own (tools/chaos)")
}

// check returns a usage error for flags that do not go together.
func (f *chaosFlags) check(cmd *cobra.Command, modes []demo.Mode) error {
	switch {
	case f.duration < 0:
		return usagef("--chaos is %v; give a time such as 10m", f.duration)
	case f.soak < 0:
		return usagef("--soak is %d; give the number of times that the trace is to be played", f.soak)
	case f.soak > 0 && f.duration > 0:
		return usagef("--soak and --chaos: a node that was killed has no history; leave out one of the two")
	case f.soak > 0 && (len(modes) == 0 || demo.IsSharing(modes) || cmd.Flags().Changed("tour")):
		return usagef("--soak is played with prefill and decode nodes; use --mode all, or one push or pull mode")
	case f.duration == 0:
		for _, name := range []string{"chaos-seed", "chaos-network"} {
			if cmd.Flags().Changed(name) {
				return usagef("--%s needs --chaos, the time for which strikes go on", name)
			}
		}
		return nil
	case len(modes) == 0 || demo.IsSharing(modes):
		return usagef("--chaos is played with prefill and decode nodes; use --mode all, or one push or pull mode")
	}
	for _, name := range []string{"tour", "device", "faults", "other", "no-crash", "speed"} {
		if cmd.Flags().Changed(name) {
			return usagef("--chaos and --%s: strikes are played on nodes in host memory, as fast as possible; leave out --%s", name, name)
		}
	}
	if f.network {
		if err := demo.CheckNetwork(); err != nil {
			return usagef("--chaos-network: %v", err)
		}
	}
	return nil
}

// roundRequestsMin is the number of requests of a round, for which a short trace is played several times: enough for
// several strikes.
const roundRequestsMin = 1000

// A chaosSummary is the result of all rounds.
type chaosSummary struct {
	Rounds        int            `json:"rounds"`
	Seconds       float64        `json:"seconds"`
	Completed     int            `json:"completed"`
	Lost          int            `json:"lost"`
	BytesVerified int64          `json:"bytes_verified"`
	BytesWrong    int64          `json:"bytes_wrong"`
	Strikes       map[string]int `json:"strikes"`
	Failures      map[string]int `json:"failures"` // of attempts, which were repeated
	// Failed has the reports of the rounds in which something was wrong.
	Failed []*demo.Report `json:"failed"`
	OK     bool           `json:"ok"`
}

// playChaos replays in one mode after the other, with other strikes in each round, until the time is over.
func playChaos(cmd *cobra.Command, o demo.Options, modes []demo.Mode, f *chaosFlags, asJSON bool) error {
	out := cmd.OutOrStdout()
	if asJSON {
		out = io.Discard
	}
	begin := time.Now()
	all := chaosSummary{Strikes: map[string]int{}, Failures: map[string]int{}, Failed: []*demo.Report{}}
	o.Crash = false // The strikes include kills.
	for played := o.Requests; len(o.Requests) < roundRequestsMin; {
		o.Requests = append(o.Requests, played...)
	}
	for all.Rounds == 0 || time.Since(begin) < f.duration {
		o.Mode = modes[all.Rounds%len(modes)]
		o.Chaos = &demo.Chaos{Seed: f.seed + uint64(all.Rounds), Network: f.network}
		finish := showReplayProgress(cmd.ErrOrStderr(), string(o.Mode), &o)
		report, err := demo.Run(cmd.Context(), o)
		finish()
		if err != nil {
			return err
		}
		all.add(report)
		fmt.Fprintf(out, "%8s  seed %d  %-12s %d completed, %d lost, %d bytes wrong; %d strikes\n", time.Since(begin).Round(time.Second),
			o.Chaos.Seed, o.Mode, report.Completed, report.Lost, report.BytesWrong, sum(report.Strikes))
		if !report.OK {
			if err := report.Print(out); err != nil {
				return err
			}
		}
	}
	all.Seconds, all.OK = time.Since(begin).Seconds(), len(all.Failed) == 0
	if asJSON {
		if err := printJSON(cmd.OutOrStdout(), all); err != nil {
			return err
		}
	}
	fmt.Fprintf(out, "%d rounds: %d requests completed, %d lost, %.1f GiB verified, %d bytes wrong; strikes: %s; attempts that failed: %s\n",
		all.Rounds, all.Completed, all.Lost, float64(all.BytesVerified)/(1<<30), all.BytesWrong, demo.FormatCounts(all.Strikes),
		demo.FormatCounts(all.Failures))
	if !all.OK {
		return errFinding
	}
	return nil
}

func (s *chaosSummary) add(r *demo.Report) {
	s.Rounds++
	s.Completed += r.Completed
	s.Lost += r.Lost
	s.BytesVerified += r.BytesVerified
	s.BytesWrong += r.BytesWrong
	for name, n := range r.Strikes {
		s.Strikes[name] += n
	}
	for name, n := range r.Failures {
		s.Failures[name] += n
	}
	if !r.OK {
		s.Failed = append(s.Failed, r)
	}
}

func sum(counts map[string]int) (n int) {
	for _, c := range counts {
		n += c
	}
	return n
}
