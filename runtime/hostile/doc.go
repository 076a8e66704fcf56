// Package hostile is a suite of tests that do to a node what the world may do to it below its driver: connections that
// say nothing or never stop, files and names that run out, a log that takes nothing. `make hostile` runs it in full and
// prints figures; `make test` runs it short.
//
// The node under attack is a process of its own, with limits of its own. An honest sender goes on all the while an
// attack does, and its 99th percentile is told beside the quiet one of the same run. What is asserted does not depend
// on how fast the machine is: no put fails, every byte that arrives is right, memory and open files stay under the
// bounds stated, nothing stays held, one line of the log says what is wrong, and afterwards all works. Times are
// figures.
package hostile
