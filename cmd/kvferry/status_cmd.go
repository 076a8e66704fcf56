package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvferry/kvferry/runtime/config"
	"github.com/kvferry/kvferry/runtime/secure"
)

// statusTimeout is how long kvferry status waits for the process.
const statusTimeout = 10 * time.Second

func newStatusCommand() *cobra.Command {
	var file, address string
	var rank int
	var asJSON, live bool
	cmd := &cobra.Command{
		Use:   "status (--address HOST:PORT | --config FILE)",
		Short: "Print whether a running process is ready, and what it holds",
		Long: `status asks the HTTP interface for operators of a node, an agent or a directory
(operator.port) whether the process is ready, and prints what it holds. With --config it finds
the interface by the configuration of the process, and uses that file's certificates if the
interface requires TLS. The exit code is 0 if the process is ready, and 1 if it is not ready or
does not answer. With --live it is 0 unless the process must be replaced; a process that drains
is live, and not ready. Both serve as probes of Kubernetes.`,
		Example: `  kvferry status --address 127.0.0.1:9410
  kvferry status --config receiver.yaml --json
  kvferry status --address 127.0.0.1:9410 --live`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if (file == "") == (address == "") {
				return usagef("give --address, or --config")
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), statusTimeout)
			defer cancel()
			url, client := "http://"+address, http.DefaultClient
			if file != "" {
				var guard *secure.Guard
				var err error
				if url, guard, err = operatorOf(file, rank); err != nil {
					return err
				}
				defer guard.Close()
				if guard != nil {
					client = &http.Client{Transport: &http.Transport{TLSClientConfig: guard.HTTPClientConfig()}}
				}
			}
			body, err := fetchStatus(ctx, client, url+"/status")
			if err != nil {
				return err
			}
			var s statusReport
			if err := json.Unmarshal(body, &s); err != nil {
				return fmt.Errorf("%s does not answer as kvferry does: %w; give the address of operator.port", url, err)
			}
			if asJSON {
				_, err = cmd.OutOrStdout().Write(body)
			} else {
				err = s.print(cmd.OutOrStdout())
			}
			if err == nil && !s.Ready && (!live || !s.Live) {
				err = errFinding
			}
			return err
		},
	}
	cmd.Flags().StringVar(&address, "address", "", "the address of the interface, as host:port, without TLS")
	cmd.Flags().StringVar(&file, "config", "", "the configuration of the process, YAML")
	cmd.Flags().IntVar(&rank, "rank", 0, "the rank of the process in the configuration")
	cmd.Flags().BoolVar(&live, "live", false, "let the exit code say whether the process is live, not whether it is ready")
	addJSONFlag(cmd, &asJSON)
	return cmd
}

// operatorOf returns where the process of a configuration file serves operators, and the guard with which a client proves
// its identity there. The guard is nil where the interface speaks HTTP without TLS. The caller closes the guard.
func operatorOf(file string, rank int) (url string, guard *secure.Guard, err error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return "", nil, usageError{err}
	}
	var o *config.Operator
	var security *config.Security
	// A file of a directory is refused as a node's, and the reverse.
	if node, nodeErr := config.Parse(file, data, os.LookupEnv); nodeErr == nil {
		o, security = &node.Operator, &node.Security
	} else if directory, directoryErr := config.ParseDirectory(file, data, os.LookupEnv); directoryErr == nil {
		o, security = &directory.Operator, &directory.Security
	} else {
		return "", nil, usageError{nodeErr}
	}
	at, ok := o.Endpoint(rank)
	if !ok {
		return "", nil, usagef("%s has no operator.port for rank %d, so the process serves no operators; add the key", file, rank)
	}
	host := at.Host
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	address := net.JoinHostPort(host, strconv.Itoa(int(at.Port)))
	if isLoopback(at.Host) {
		return "http://" + address, nil, nil
	}
	if guard, err = security.Open(newLogger(io.Discard, slog.LevelInfo, false)); err != nil || guard == nil {
		return "http://" + address, nil, err
	}
	return "https://" + address, guard, nil
}

// isLoopback reports whether only this host reaches a host's address.
func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// statusBytesMax bounds the answer.
const statusBytesMax = 4 << 20

func fetchStatus(ctx context.Context, client *http.Client, url string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, usageError{err}
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("%w; is the process running, and is this its operator.port?", err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, statusBytesMax))
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s answers %s: %s", url, response.Status, body)
	}
	return body, err
}

// A statusReport is the part of the answer that is printed as text.
type statusReport struct {
	Version string `json:"version"`
	Ready   bool   `json:"ready"`
	Live    bool   `json:"live"`
	Checks  []struct {
		Name  string `json:"name"`
		OK    bool   `json:"ok"`
		Note  bool   `json:"note"`
		Error string `json:"error"`
	} `json:"checks"`
	Node *struct {
		State       string `json:"state"`
		Role        string `json:"role"`
		Incarnation string `json:"incarnation"`
		Pages       []struct {
			Pool  string         `json:"pool"`
			Total int            `json:"total"`
			Count map[string]int `json:"count"`
		} `json:"pages"`
		Tables map[string]int `json:"tables"`
		Limits map[string]int `json:"limits"`

		WaitsFor map[string]int `json:"waits_for"`
	} `json:"node"`
	Agent     map[string]int `json:"agent"`
	Directory map[string]any `json:"directory"`
}

func (s *statusReport) print(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	ready := "ready"
	if !s.Ready {
		ready = "not ready"
	}
	fmt.Fprintf(w, "%s\tkvferry %s\n", ready, s.Version)
	for _, c := range s.Checks {
		result := "ok"
		switch {
		case c.Note:
			result = "note: " + c.Error
		case !c.OK:
			result = "FAILED: " + c.Error
		}
		fmt.Fprintf(w, "check\t%s\t%s\n", c.Name, result)
	}
	if n := s.Node; n != nil {
		fmt.Fprintf(w, "node\t%s, %s\t%s\n", n.Role, n.State, n.Incarnation)
		for _, kind := range slices.Sorted(maps.Keys(n.WaitsFor)) {
			fmt.Fprintf(w, "drain\twaits for\t%d %s\n", n.WaitsFor[kind], kind)
		}
		for _, p := range n.Pages {
			fmt.Fprintf(w, "pages\t%s\t%d", p.Pool, p.Total)
			for _, state := range slices.Sorted(maps.Keys(p.Count)) {
				if p.Count[state] > 0 {
					fmt.Fprintf(w, ", %d %s", p.Count[state], state)
				}
			}
			fmt.Fprintln(w)
		}
		for _, table := range slices.Sorted(maps.Keys(n.Tables)) {
			limit := ""
			if n.Limits[table] > 0 {
				limit = fmt.Sprintf(" of %d", n.Limits[table])
			}
			if n.Tables[table] > 0 {
				fmt.Fprintf(w, "table\t%s\t%d%s\n", table, n.Tables[table], limit)
			}
		}
	}
	for _, what := range slices.Sorted(maps.Keys(s.Agent)) {
		fmt.Fprintf(w, "agent\t%s\t%d\n", what, s.Agent[what])
	}
	for _, what := range slices.Sorted(maps.Keys(s.Directory)) {
		fmt.Fprintf(w, "directory\t%s\t%v\n", what, s.Directory[what])
	}
	return w.Flush()
}
