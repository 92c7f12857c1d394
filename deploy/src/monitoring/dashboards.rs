//! Dashboards of Grafana 10 and later.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{Dashboard, Kind, Panel};

/// Version of the schema of Grafana 10.0; later versions migrate it.
const SCHEMA: u32 = 38;
const COLUMNS: u32 = 24;
/// Names of queries in a panel.
const REFERENCES: [&str; 8] = ["A", "B", "C", "D", "E", "F", "G", "H"];

pub(super) fn dashboard(dashboard: &Dashboard, variables: &BTreeMap<String, String>) -> Value {
    let mut panels: Vec<Value> = Vec::new();
    let mut y = 0;
    for row in &dashboard.rows {
        let id = panels.len() + 1;
        panels.push(json!({
            "id": id, "type": "row", "title": row.title, "collapsed": false, "panels": [],
            "gridPos": {"x": 0, "y": y, "w": COLUMNS, "h": 1},
        }));
        y += 1;
        let (mut x, mut tallest) = (0, 0);
        for panel in &row.panels {
            let height = if panel.kind == Kind::Stat { 5 } else { 8 };
            if x + panel.width > COLUMNS {
                (x, y, tallest) = (0, y + tallest, 0);
            }
            let id = panels.len() + 1;
            panels.push(self::panel(panel, id, &json!({"x": x, "y": y, "w": panel.width, "h": height})));
            x += panel.width;
            tallest = tallest.max(height);
        }
        y += tallest;
    }
    json!({
        "uid": format!("neonvm-{}", dashboard.name),
        "title": dashboard.title,
        "description": dashboard.description,
        "tags": ["neonvm"],
        "schemaVersion": SCHEMA,
        "version": 1,
        "editable": true,
        "graphTooltip": 1,
        "refresh": "30s",
        "timezone": "browser",
        "time": {"from": "now-6h", "to": "now"},
        "links": [{
            "type": "dashboards", "tags": ["neonvm"], "title": "neonvm", "asDropdown": false,
            "includeVars": true, "keepTime": true,
        }],
        "templating": {"list": self::variables(dashboard, variables)},
        "panels": panels,
    })
}

fn source() -> Value {
    json!({"type": "prometheus", "uid": "${datasource}"})
}

/// The data source, and each variable that a query or another variable's query uses.
fn variables(dashboard: &Dashboard, all: &BTreeMap<String, String>) -> Vec<Value> {
    let queries = dashboard.rows.iter().flat_map(|row| &row.panels).flat_map(|panel| &panel.queries);
    let mut used: String = queries.map(|query| query.expr.as_str()).collect();
    let is_used = |used: &str, name: &str| used.contains(&format!("\"${name}\""));
    for (name, query) in all {
        if is_used(&used, name) {
            used.push_str(query);
        }
    }
    let mut list = vec![json!({
        "name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus",
        "refresh": 1, "multi": false, "includeAll": false,
    })];
    for (name, query) in all.iter().filter(|(name, _)| is_used(&used, name)) {
        list.push(json!({
            "name": name, "label": name, "type": "query", "datasource": source(),
            "definition": query, "query": {"query": query, "refId": "StandardVariableQuery"},
            "refresh": 2, "sort": 1, "multi": true, "includeAll": true, "allValue": ".*",
            "current": {"selected": true, "text": ["All"], "value": ["$__all"]},
        }));
    }
    list
}

fn panel(panel: &Panel, id: usize, place: &Value) -> Value {
    let is_line = panel.kind == Kind::TimeSeries;
    let format = if panel.kind == Kind::Table { "table" } else { "time_series" };
    let targets = panel.queries.iter().zip(REFERENCES).map(|(query, reference)| {
        json!({
            "refId": reference, "datasource": source(), "expr": query.expr, "legendFormat": query.legend,
            "editorMode": "code", "format": format, "range": is_line, "instant": !is_line,
        })
    });
    let mut whole = json!({
        "id": id,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.description,
        "gridPos": place,
        "datasource": source(),
        "targets": targets.collect::<Vec<_>>(),
        "fieldConfig": {"defaults": defaults(panel), "overrides": overrides(panel)},
        "options": options(panel.kind),
    });
    if panel.kind == Kind::Table
        && let Value::Object(whole) = &mut whole
    {
        let hidden = json!([{"id": "organize", "options": {"excludeByName": {"Time": true}}}]);
        whole.insert("transformations".to_owned(), hidden);
    }
    whole
}

/// Unit, colours and words. Colours are blue and orange, which most people distinguish, and never stand alone: each number has its
/// text, each line its name in the legend.
fn defaults(panel: &Panel) -> Value {
    let mut steps = vec![json!({"color": "blue", "value": null})];
    steps.extend(panel.warn.map(|warn| json!({"color": "orange", "value": warn})));
    let states = panel.states.iter().enumerate().map(|(index, (value, (text, color)))| {
        (value.clone(), json!({"text": text, "color": color, "index": index}))
    });
    let states: serde_json::Map<String, Value> = states.collect();
    let mappings = if states.is_empty() { json!([]) } else { json!([{"type": "value", "options": states}]) };
    let custom = if panel.kind == Kind::TimeSeries {
        json!({
            "drawStyle": "line", "lineWidth": 2, "showPoints": "never", "spanNulls": false,
            "fillOpacity": if panel.stack { 40 } else { 5 },
            "stacking": {"mode": if panel.stack { "normal" } else { "none" }, "group": "A"},
        })
    } else {
        json!({})
    };
    let by = if panel.kind == Kind::TimeSeries { "palette-classic" } else { "thresholds" };
    let mut defaults = json!({
        "unit": panel.unit,
        "min": 0,
        "color": {"mode": by},
        "thresholds": {"mode": "absolute", "steps": steps},
        "mappings": mappings,
        "custom": custom,
    });
    if panel.kind == Kind::BarGauge
        && panel.unit == "percentunit"
        && let Value::Object(defaults) = &mut defaults
    {
        defaults.insert("max".to_owned(), json!(1));
    }
    defaults
}

fn overrides(panel: &Panel) -> Vec<Value> {
    let style = json!({"fill": "dash", "dash": [10, 10]});
    let dashed = panel.dashed.iter().map(|names| {
        json!({
            "matcher": {"id": "byRegexp", "options": format!("/^{names}$/")},
            "properties": [{"id": "custom.lineStyle", "value": style}],
        })
    });
    dashed.collect()
}

fn options(kind: Kind) -> Value {
    let last = json!({"calcs": ["lastNotNull"], "fields": "", "values": false});
    match kind {
        Kind::TimeSeries => json!({
            "legend": {
                "displayMode": "table", "placement": "bottom", "showLegend": true, "calcs": ["lastNotNull", "max"],
            },
            "tooltip": {"mode": "multi", "sort": "desc"},
        }),
        Kind::Stat => json!({
            "colorMode": "value", "graphMode": "none", "justifyMode": "auto", "textMode": "auto",
            "orientation": "auto", "reduceOptions": last,
        }),
        Kind::Table => json!({"showHeader": true, "cellHeight": "sm"}),
        Kind::BarGauge => json!({
            "displayMode": "basic", "orientation": "horizontal", "valueMode": "text", "showUnfilled": true,
            "reduceOptions": last,
        }),
    }
}
