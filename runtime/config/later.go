package config

import "go.yaml.in/yaml/v4"

// The kinds of this file belong to what this version cannot do. Their keys are accepted at the
// value that asks for nothing, so that a complete LMCache file needs no edits, and refused at any
// other: a setting without effect would be found out in production.

const refusal = "not supported by this version: "

// offSwitch is a switch that must be off.
func offSwitch(instead string) kind {
	return kind{"false", func(_ *draft, n *yaml.Node) (Code, string) {
		s, remedy := bare(n)
		if remedy != "" {
			return Type, remedy
		}
		on, err := parseBool(s)
		if err != nil {
			return Type, err.Error()
		}
		if on {
			return Unsupported, refusal + instead
		}
		return ok, ""
	}}
}

// offUnset is a value that must not be given, or be null, an empty list, or, for a number, 0.
func offUnset(instead string) kind {
	return kind{"unset", func(_ *draft, n *yaml.Node) (Code, string) {
		if n.Kind == yaml.SequenceNode && len(n.Content) == 0 || n.Kind == yaml.ScalarNode && n.Value == "0" {
			return ok, ""
		}
		return Unsupported, refusal + instead
	}}
}

const beforePorts = "it belongs to LMCache's first transfer protocol; remove it and set "

// Release is the release of LMCache that the tables of keys are taken from, names and defaults.
const Release = "0.5.6"

// laterKeys are LMCache's keys for modes that this version has not.
var laterKeys = []key{
	{name: "nixl_receiver_host", kind: offUnset(beforePorts + "pd_peer_host"),
		doc: "the transfer of LMCache before 0.3, on one port"},
	{name: "nixl_receiver_port", kind: offUnset(beforePorts + "pd_peer_init_port and pd_peer_alloc_port"),
		doc: "the transfer of LMCache before 0.3, on one port"},
	{name: "nixl_peer_port", kind: offUnset(beforePorts + "pd_peer_init_port and pd_peer_alloc_port"),
		doc: "the transfer of LMCache before 0.3, on one port"},
}

// ignoredKeys are LMCache's keys for what happens on other sides of it than this transfer: local
// tiers, lookups, its controller, its HTTP server. Their values are not looked at.
var ignoredKeys = []string{
	"app_id", "audit_actual_remote_url", "blend_check_layers", "blend_min_tokens", "blend_recompute_ratios",
	"blend_special_str", "blend_thresholds", "blocking_timeout_secs", "cache_policy",
	"chunk_statistics_auto_exit_target_unique_chunks", "chunk_statistics_auto_exit_timeout_hours",
	"chunk_statistics_auto_start_statistics", "chunk_statistics_strategy",
	"enable_async_loading", "enable_blending", "enable_chunk_statistics",
	"enable_hidden_state_cache", "enable_kv_events", "enable_lazy_memory_allocator",
	"enable_scheduler_bypass_lookup", "external_backends", "external_lookup_client", "gds_backend",
	"gds_buffer_size", "gds_path", "gds_path_sharding", "hidden_state_layers", "hidden_states_retrieve_mode",
	"hit_miss_ratio", "internal_api_server_enabled", "internal_api_server_host",
	"internal_api_server_include_index_list", "internal_api_server_port_start",
	"internal_api_server_socket_path_prefix", "lazy_memory_expand_trigger_ratio", "lazy_memory_initial_ratio",
	"lazy_memory_safe_size", "lazy_memory_step_ratio",
	"lmcache_worker_heartbeat_delay_time", "lmcache_worker_ids",
	"local_cpu", "local_cpu_use_hugepages", "local_disk",
	"local_disk_path_sharding", "lookup_server_worker_ids", "lookup_timeout_ms", "maru_path", "maru_pool_size",
	"max_hidden_state_cpu_size", "max_local_disk_size", "min_retrieve_tokens", "mp_host",
	"mp_port", "nixl_backends", "numa_mode",
	"pin_check_interval_sec", "pin_timeout_sec", "plugin_locations", "pre_caching_hash_algorithm",
	"priority_limit", "py_enable_gc", "remote_config_url", "remote_serde", "remote_storage_plugins", "remote_url",
	"reserve_local_cpu_size", "run_script_api_enabled", "runtime_plugin_locations", "save_decode_cache",
	"script_allowed_imports", "storage_plugins", "use_gds", "use_gpu_connector_v3",
}

// strayKeys are such keys, too, of other releases of LMCache and of LMCache-Ascend.
var strayKeys = []string{
	"config_file", "cost_aware_ewma_alpha", "cost_aware_half_life_seconds", "cufile_buffer_size",
	"enable_chunk_hashes_return", "enable_nixl",
	"error_handling", "lookup_hashes_cache_size", "nixl_enable_gc", "store_async",
	"store_async_max_queue_size", "weka_path",
}
