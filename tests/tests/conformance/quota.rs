//! Quantities, requests and the quota forest.

use std::path::Path;

use serde_json::Value;
use slicegate_quota::{Amount, Quantity, request_quantity, request_value};

use crate::report::{Report, expect_eq};

const KIND: &str = "quota";

/// Runs every suite of the kind.
pub(crate) fn run(corpus: &Path, report: &mut Report) {
    report.suite(corpus, KIND, "quantity-to-amount", quantity_to_amount);
    report.suite(corpus, KIND, "quantity-to-request", quantity_to_request);
    report.suite(corpus, KIND, "request-to-quantity", request_to_quantity);
    report.note_rest(corpus, KIND);
}

fn text<'a>(case: &'a Value, key: &str) -> &'a str {
    case[key].as_str().unwrap_or_default()
}

fn quantity(text: &str) -> Result<Quantity, String> {
    text.parse().map_err(|e: slicegate_quota::ParseQuantityError| e.to_string())
}

fn quantity_to_amount(case: &Value) -> Result<(), String> {
    let amount = Amount::from_quantity(text(case, "resource"), quantity(text(case, "quantity"))?);
    expect_eq("amount", &Some(amount.value()), &case["expect"]["amount"].as_i64())?;
    expect_eq("unlimited", &Some(amount.is_unlimited()), &case["expect"]["unlimited"].as_bool())
}

fn quantity_to_request(case: &Value) -> Result<(), String> {
    let value = request_value(text(case, "resource"), quantity(text(case, "quantity"))?);
    expect_eq("value", &Some(value), &case["expect"]["value"].as_i64())
}

fn request_to_quantity(case: &Value) -> Result<(), String> {
    let value = case["value"].as_i64().unwrap_or_default();
    let quantity = if case["binaryFormat"] == true {
        slicegate_quota::byte_quantity(value)
    } else {
        request_quantity(text(case, "resource"), value)
    };
    expect_eq("quantity", &Some(quantity.to_string().as_str()), &case["expect"]["quantity"].as_str())
}
