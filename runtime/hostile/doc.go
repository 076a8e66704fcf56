// Package hostile is a suite of tests that do to a node what the world may do to it below its driver: connections that
// say nothing or never stop, files, memory and names that run out, peers that lie or are stopped and go on, a log that
// takes nothing. `make hostile` runs it in full and prints figures; `make test` runs it short.
//
// The node under attack is a process of its own, with limits of its own. An honest sender goes on all the while an
// attack does, and its 99th percentile is told beside the quiet one of the same run. Both have a steady rate, which is
// told beside what came of it: how a machine that is struck as fast as another can serves others says how fast its
// processors are, and no more (HOSTILE="-strikes 0" does that). What is asserted does not depend on how fast it is: no
// put fails, every byte that arrives is right, memory and open files stay under the bounds stated, nothing stays
// held, one line of the log says what is wrong, and afterwards all works. Times are figures.
package hostile
