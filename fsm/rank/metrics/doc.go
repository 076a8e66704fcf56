// Package metrics says which numbers a node exports of its rank, and computes them: the gauges from the counts of the
// machine's tables ([AppendGauges]), the counters and the values of histograms from the events and effects of the
// machine's steps ([Meter]). Package runtime/operator gives them to Prometheus. The simulator computes the same numbers
// with the same code, and compares them with what happened (property L12 of docs/safety.md).
//
// Example: a machine writes two pages of 4 KiB to a peer over the plane "tcp". The driver gives the meter the effect
// Transfer, and later the event TransferDone with code OK. The meter then counts one transfer and 8192 bytes, with the
// labels "tcp", "write" and "ok", and has the time between the two as a value for the histogram of transfers.
package metrics
