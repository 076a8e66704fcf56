// Package operator serves what those who operate kvferry need to see of a process, over HTTP: metrics for Prometheus,
// liveness, readiness, the state as JSON, and Go's profiles.
//
// Embed it beside a node:
//
//	timer := operator.NewTimer()
//	node, err := runtime.Open(ctx, cfg, append(timer.Options(), ...)...)
//	...
//	server, err := operator.Serve(operator.Config{Address: "127.0.0.1:9410", Sources: []operator.Source{operator.Node(node, timer)}})
//	...
//	defer server.Close()
//
// Nothing here waits for the loop of a node for more than a second, and a request that finds the loop stuck says so.
// Labels have values of this program only, so that no peer and no engine creates series. The names of the metrics and
// their meaning are in docs/metrics.md.
package operator
