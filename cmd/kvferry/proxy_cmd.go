package main

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvferry/kvferry/runtime/config"
	"github.com/kvferry/kvferry/runtime/proxy"
)

func newProxyCommand() *cobra.Command {
	to := proxy.Defaults()
	var prefills, decodes []string
	var level slog.Level
	var asJSON bool
	var drain time.Duration
	body, total := config.Size(to.BodyBytes), config.Size(to.TotalBytes)
	cmd := &cobra.Command{
		Use:   "proxy --prefill URL --decode URL=HOST:INIT:ALLOC",
		Short: "Serve OpenAI's completions by prefill and decode engines",
		Long: `proxy is the front of engines of vLLM with KvferryConnector (docs/vllm.md). It has a
prefill engine compute each prompt of POST /v1/completions and /v1/chat/completions,
with kv_transfer_params that name the agents of a decode engine, and that engine
answer; the answer is streamed through. Engines take turns.

What a prefill engine does not do in time, or cannot, the decode engine computes: a
prompt never fails because of a cache. Without --prefill that is so of all prompts.
So are requests of which there is no one cache to send: several prompts or choices
(n), beam search, echo, prompt_logprobs.

--decode says where the engine's agents receive, as their files do: pd_peer_host,
pd_peer_init_port and pd_peer_alloc_port. Several ranks have ports with commas.

GET /health asks the engines; it answers 200 if a decode engine does. GET /v1/models is
a decode engine's. When it serves it prints one line of JSON. There is no TLS: clients
come by a network that is trusted, or by what ends it.

A decode engine that cannot be reached, breaks off, or says nothing for --silence, nor of
its health, is left out for --rest, and longer when it fails again. A stream that breaks
off ends with an error.

SIGTERM and SIGINT let requests under way end, for --drain at the most: less than the
30 s after which Kubernetes kills what it stops, so that clients are told. For a longer
one raise terminationGracePeriodSeconds, too. A second signal ends it at once.`,
		Example: `  kvferry proxy --listen :8000 --prefill http://10.0.0.1:8100 \
    --decode http://10.0.0.2:8200=10.0.0.2:7300:7400`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, text := range prefills {
				engine, err := proxy.ParseEngine(text)
				if err != nil {
					return usageError{err}
				}
				to.Prefills = append(to.Prefills, engine)
			}
			for _, text := range decodes {
				engine, err := proxy.ParseDecode(text)
				if err != nil {
					return usageError{err}
				}
				to.Decodes = append(to.Decodes, engine)
			}
			if len(to.Decodes) == 0 {
				return usagef("name a decode engine with --decode")
			}
			to.BodyBytes, to.TotalBytes = int64(body), int64(total)
			if err := to.Check(); err != nil {
				return usageError{err}
			}
			to.Log = newLogger(cmd.ErrOrStderr(), config.Log{Level: level, JSON: asJSON})
			p, err := proxy.Listen(to)
			if err != nil {
				return err
			}
			line := map[string]any{"address": p.Addr().String(), "prefills": len(to.Prefills), "decodes": len(to.Decodes)}
			if err := json.NewEncoder(cmd.OutOrStdout()).Encode(line); err != nil {
				return errors.Join(err, p.Close(cmd.Context()))
			}
			<-cmd.Context().Done()
			to.Log.Info("draining", "remedy", "a second signal ends it at once")
			ctx, cancel := context.WithTimeout(context.WithoutCancel(cmd.Context()), drain)
			defer cancel()
			if err := p.Close(ctx); err != nil {
				to.Log.Warn("not all requests have ended", "err", err)
			}
			to.Log.Info("stopped", "requests", p.Stats())
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&to.Address, "listen", to.Address, "where clients come, host:port")
	f.StringArrayVar(&prefills, "prefill", nil, "a prefill engine; several times for several")
	f.StringArrayVar(&decodes, "decode", nil, "a decode engine and its agents; several times for several")
	f.IntVar(&to.Connections, "connections", to.Connections, "how many connections there may be")
	f.IntVar(&to.Requests, "requests", to.Requests, "how many requests may be under way")
	f.Var(&body, "body", "how long the body of a request may be")
	f.Var(&total, "bodies", "how long all bodies under way may be together")
	f.DurationVar(&to.ReadTimeout, "read-timeout", to.ReadTimeout, "for a request to come whole")
	f.DurationVar(&to.WriteTimeout, "write-timeout", to.WriteTimeout, "for a client to take a piece of its answer")
	f.DurationVar(&to.PrefillTimeout, "prefill-timeout", to.PrefillTimeout, "for a prefill engine; then decode computes")
	f.DurationVar(&to.Timeout, "timeout", to.Timeout, "for all of a request")
	f.DurationVar(&to.Silence, "silence", to.Silence, "of a decode engine that is to answer; then its health is asked")
	f.DurationVar(&to.Rest, "rest", to.Rest, "how long an engine that failed is left out at first; up to 16 times that")
	f.DurationVar(&drain, "drain", 20*time.Second, "for requests under way, when it is told to stop")
	f.TextVar(&level, "log-level", slog.LevelInfo, "debug, info, warn or error")
	f.BoolVar(&asJSON, "log-json", false, "log JSON instead of text")
	return cmd
}
