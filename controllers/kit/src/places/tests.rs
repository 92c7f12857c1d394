use super::*;

const PLACES: Places = Places { arriving: 4, strangers: 4, per_address: 2, known: 2 };

fn address(last: u8) -> IpAddr {
    IpAddr::from([10, 0, 0, last])
}

fn busy(table: &mut Table, number: u64) {
    table.entries.get_mut(&number).unwrap().requests = 1;
}

#[test]
fn an_address_that_holds_many_places_gives_up_its_own_idle_ones() {
    let mut table = Table::new(PLACES);
    assert_eq!(table.enter(address(1), Class::Stranger), Ok((0, None)));
    assert_eq!(table.enter(address(1), Class::Stranger), Ok((1, None)));
    assert_eq!(table.enter(address(2), Class::Stranger), Ok((2, None)));
    // The third of an address takes the place of its first, although others are free.
    assert_eq!(table.enter(address(1), Class::Stranger), Ok((3, Some(0))));
    busy(&mut table, 1);
    busy(&mut table, 3);
    assert_eq!(table.enter(address(1), Class::Stranger), Err(Full));
    assert_eq!(table.enter(address(2), Class::Stranger), Ok((4, None)));
}

#[test]
fn when_places_run_out_the_largest_crowd_pays() {
    let mut table = Table::new(PLACES);
    for last in [1, 2, 2, 3] {
        table.enter(address(last), Class::Stranger).unwrap();
    }
    // Number 1 is the first of the address with two.
    assert_eq!(table.enter(address(4), Class::Stranger), Ok((4, Some(1))));
    // All hold one now: the one that came first goes.
    assert_eq!(table.enter(address(5), Class::Stranger), Ok((5, Some(0))));
    let all: Vec<u64> = table.entries.keys().copied().collect();
    for number in all {
        busy(&mut table, number);
    }
    assert_eq!(table.enter(address(6), Class::Stranger), Err(Full));
}

#[test]
fn strangers_and_handshakes_take_no_place_of_known_peers() {
    let mut table = Table::new(PLACES);
    for last in 0..100 {
        let _ = table.enter(address(last), Class::Arriving);
        if let Ok((number, _)) = table.enter(address(last), Class::Stranger) {
            busy(&mut table, number);
        }
    }
    assert_eq!(table.entries.len(), PLACES.arriving + PLACES.strangers);
    let (number, closed) = table.enter(address(200), Class::Arriving).unwrap();
    assert!(closed.is_some(), "a handshake that is not finished gives way");
    assert_eq!(table.turn(number, Class::Known), Ok(None));
    // A stranger without a place does not stay in that of a handshake.
    let (number, _) = table.enter(address(201), Class::Arriving).unwrap();
    assert_eq!(table.turn(number, Class::Stranger), Err(Full));
    assert!(!table.entries.contains_key(&number));
}

#[test]
fn a_connection_whose_place_was_given_away_cannot_go_on() {
    let mut table = Table::new(PLACES);
    let first = table.enter(address(1), Class::Arriving).unwrap().0;
    for _ in 0..PLACES.arriving {
        table.enter(address(1), Class::Arriving).unwrap();
    }
    assert_eq!(table.turn(first, Class::Known), Err(Full));
}

#[tokio::test]
async fn who_has_to_go_is_woken_and_a_dropped_seat_is_free() {
    let door = Door::new(Places { strangers: 1, per_address: 1, ..PLACES });
    let first = door.enter(address(1), Class::Stranger).unwrap();
    let second = Arc::new(door.enter(address(2), Class::Stranger).unwrap());
    first.given_away().await;
    let request = second.request();
    assert_eq!(door.enter(address(3), Class::Stranger).unwrap_err(), Full);
    drop(first);
    assert_eq!(door.enter(address(3), Class::Stranger).unwrap_err(), Full, "its place was another's");
    drop(request);
    assert!(door.enter(address(3), Class::Stranger).is_ok());
    second.given_away().await;
}
