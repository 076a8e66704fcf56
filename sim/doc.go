// Package sim runs clusters of kvferry's state machines in one goroutine on virtual time, injects faults, and verifies
// the promises of docs/safety.md during each run.
//
// The simulator is the second driver of [effects.Machine]. Where package runtime owns sockets and memory, a run ([Run])
// owns a priority queue. Everything between the machines is modelled with real bytes and real memory semantics:
// messages are the output of the codecs, pages hold content stamps, and data planes copy the pages piece by piece over
// simulated time. Torn, stale and misplaced data therefore become visible.
//
// The seed decides everything. [Expand] draws a [Plan] from the seed: topology, sizes, timeouts, workload, scheduled
// faults, and the rates of all other faults. Every choice that a plan leaves open is a stateless draw from (seed,
// label, subject, ordinal). An additional message on a connection therefore leaves all remaining choices unchanged.
//
//	result, err := sim.Run(sim.Options{Seed: 7})
//	if err == nil && result.Failure != nil {
//		fmt.Println(result.Failure)
//	}
//
// # Example
//
// Suppose that a campaign runs the seeds 0 to 9999 and seed 7 breaks S2, because a page was reused while a copy was
// still reading the page:
//
//  1. [Campaign] reports the failure of seed 7 in its [Summary] and continues with the next seeds.
//  2. [Run] with the same seed repeats the run exactly: the same events in the same order, with the same failure.
//  3. [Shrink] removes jobs, nodes and faults from the plan of the seed as long as the plan still breaks S2. The result
//     is usually a plan with one or two jobs.
//  4. [Explain] runs the small plan with a recorder and returns the last steps that touched the page, together with a
//     trace that package report shows as a page.
//  5. The small plan is kept as a regression test. [StaleReasons] reports when the plan no longer exercises the defect for
//     which the plan is kept.
//
// # Packages
//
// The simulator consists of these packages:
//
//	draw      every choice that a plan leaves open, as a function of the name of the choice
//	plan      a run as data: its text, its checks, its faults, and the subjects of draws (Subject)
//	expand    the plan of a seed for prefill and decode, and the profiles that narrow the draws
//	oracle    checks, promises and subjects: the common parts of everything that judges a run
//	coverage  counts of the unusual paths that runs took, by name
//	world     nodes that run any machine: clocks, networks, planes, memory, faults, the event log
//	explore   every order of events in a small world; package snapshot clones and hashes the world
//	story     a run in sentences (package report makes a page of its trace), and the steps that a failure is about
//	systems/pd         ranks in a world: engines, the proxy, plain peers, strangers, and their faults
//	systems/pd/ledger  the oracles of ranks, each a value with its own memory
//	systems/pd/scopes  the small worlds of ranks
//	systems/recall     a flow beside push and pull, as a value, like p2p; package systems lists these flows
//	systems/custom        what a system of machines other than ranks is: [System] has its fields
//	systems/directory  such systems, each a value with a profile of its own
//
// Packages world, explore and story know neither ranks nor messages, and call the system of a run through interfaces
// such as [world.System]. Package sim itself gives names to everything that a user of the simulator needs (facade.go),
// and contains the following:
//
//	system    the systems that users provide, with machines, items and oracles of their own; system_custom.go
//	          and the other *_custom.go files run them
//	trial     one run: a cluster of ranks, the machines of users, and the oracles that judge both
//	scopes    trials for the explorer
//	campaign  many seeds; shrink reduces the plan of a seed that failed
//
// # Stability
//
// The exported names of this package, of sim/oracle, of sim/simtest and of effects, and the text of plans
// ([plan.Parse]), are meant for use by other modules. Before 1.0 a minor release may change these names; CHANGELOG.md
// lists the changes. A [System] built from these names runs in [Run], [Campaign], [Shrink], [Explore], [RetracePath]
// and [Explain].
//
// The following is not stable: the plan that a seed expands to, which may change with every commit; the names in the
// coverage; the wording of stories and logs; the set of scopes; and all other packages below sim, except for the parts
// that this package gives names to.
package sim
