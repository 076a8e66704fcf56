// Package contract is what package effects promises, as something that can be run:
// so that the simulated driver is never kinder than the real ones.
//
// Three things stand here, one on the other:
//
//   - [Legal] lists the endings that an effect may have. The simulator must produce
//     each of them over its seeds, a real driver may produce no other.
//   - A [Checker] reads the stream of one machine's effects and its driver's events,
//     in the order in which the machine sees them, and names the first [Breach] and
//     the side that made it.
//   - [Pushes], [Pulls], [Overlaps] and [Asks] are scenarios: effects that two nodes carry out
//     against each other, and the endings that may come of it. They run on a [Stage], which the
//     simulator, every data plane and every control transport can build. [Holders] and [AllBusy]
//     show most on a [HoldStage], where threads can stand in the middle of a page.
//
// It imports nothing but effects and decides nothing at run time: it is for tests.
package contract
