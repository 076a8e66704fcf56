// Package hostile is a suite of tests that attack a node with the faults of the world below the driver: connections
// that are silent or never stop, exhaustion of files, memory and names, peers that lie, peers that are suspended and
// continue, and a log that blocks. `make hostile` runs the full suite and prints figures; `make test` runs a short
// version.
//
// The node under attack is a separate process with its own limits. An honest sender works during the whole attack. The
// suite reports the sender's 99th percentile under attack beside the percentile without an attack from the same run.
// Attacker and sender have a steady rate, which is reported beside the result: an attack at full speed would only
// measure how fast the processors are (HOSTILE="-strikes 0" does that). The assertions do not depend on speed: no put
// fails, every byte that arrives is correct, memory and open files stay below the stated bounds, nothing stays in use,
// one line of the log names the fault, and afterwards everything works. Times are figures and not asserted.
package hostile
