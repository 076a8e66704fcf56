// Package contract is the executable form of what package effects promises. It ensures that the simulated driver is
// never more lenient than the real drivers. The package imports only effects and is for tests: nothing at run time
// depends on this package.
//
// The package has three parts, each based on the previous part:
//
//   - [LegalEndings] lists the endings that an effect may have. The simulator must produce each of these endings over its
//     seeds, and a real driver may produce no ending outside the list.
//   - A [Checker] reads the effects of a machine and the events of the machine's driver, in the order in which the machine
//     sees both, and reports the first [Breach] and the side that caused the breach.
//   - [Pushes], [Pulls], [OverlappingGrants], [Requests] and similar functions return scenarios: effects that two nodes
//     carry out against each other, and the endings that may result. Scenarios run on a [Stage], which the simulator,
//     every data plane and every control transport can build. [ConcurrentAccesses] and [BusyThreads] test most on a
//     [HoldStage], where threads can be stopped in the middle of a page.
//
// # Example
//
// A test of a driver plays each scenario on a fresh stage:
//
//	for _, s := range contract.Pushes() {
//		end, err := s.Run(newStage(t))   // two nodes, A and B, with the driver under test between them
//		...
//	}
//
// In the scenario "a push under a grant that was revoked", B grants pages to A, B revokes the grant and waits for
// Revoked, and A then pushes. The push must end as Withdrawn. If the driver reported OK, Run would return an error, and
// the Checker of B would report a Landed under a revoked grant as a breach by the driver (M3).
package contract
