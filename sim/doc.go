// Package sim runs whole clusters of machines in one goroutine on virtual time,
// with faults, and watches the promises of docs/safety.md while it does.
//
// It is the second driver of [effects.Machine]: where runtime owns sockets and
// memory, a [Run] owns a priority queue. Everything between the machines is
// modelled with real bytes and real memory semantics: messages are what the codecs
// wrote, pages hold content stamps, and data planes copy them piece by piece over
// simulated time, so that torn, stale and misplaced data show.
//
// One seed decides everything. [Expand] draws a [Plan] from it (topology, sizes,
// timeouts, workload, scheduled faults, rates of the others), then every choice that a
// plan leaves open is a stateless draw of (seed, label, subject, ordinal): one more
// message on one connection leaves all other choices as they were.
//
//	result := sim.Run(sim.Options{Seed: 7})
//	if result.Failure != nil {
//	    fmt.Println(result.Failure)
//	}
//
// What it stands on has packages of its own:
//
//	draw      every choice that a plan leaves open, as a function of its name
//	plan      a run as data: its text, its checks, its faults, and what draws are about (Subject)
//	expand    what is drawn for a seed of prefill and decode, and the profiles that narrow it
//	oracle    what all who judge have: checks, promises, subjects
//	coverage  which odd paths runs took, by name
//	world     nodes that run any machine: clocks, networks, planes, memory, faults, the event log
//	explore   every order in which things can happen in a small world; package snapshot clones and hashes it
//	story     a run for people to look at (trace; report makes a page of it), and the steps that a failure is about
//	systems/pd         ranks in a world: engines, the proxy, plain peers, strangers, and their faults
//	systems/pd/ledger  who judges ranks: each oracle a value with its own memory
//	systems/pd/scopes  its small worlds
//	systems/recall     a flow beside those, as a value, as p2p is; systems lists such
//	systems/directory  a system without ranks, as a value of systems/own: a profile of its own
//
// World, explore and story know no rank and no message: a system is handed to them as a value. This package has the
// names of all that its users need (facade), and what is left is theirs:
//
//	machine   what a user brings: systems with machines, items and oracles of their own; system_own
//	          and the other files _own run them
//	trial     one run: a cluster of ranks, machines of users, and who judges all of it
//	small     trials for the explorer
//	campaign  many seeds; shrink makes the plan of one that failed smaller
//
// Made for use by other modules are the exported names of this package, of sim/oracle, of sim/simtest and of effects, and
// the text of plans ([plan.Parse]). Before 1.0 a minor release may change them; CHANGELOG.md lists what changed. A
// [System] made of them runs in [Run], [Campaign], [Shrink], [Explore], [Retrace] and [Explain].
//
// Not stable: what a seed means, which is another story with each commit; names in coverage; words of stories and
// logs; the scopes that there are; and all other packages below sim, but for what this one gives other names to.
package sim
