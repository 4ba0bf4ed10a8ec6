//! Every operator of the catalogue is held to its contract, and the check itself is tested: each of its rules finds the
//! operator that breaks it.

mod faults;

use unpadded::op::testing;
use unpadded::ops;

#[test]
fn every_operator_keeps_its_contract() {
    testing::check(&ops::catalogue()).unwrap();
}
